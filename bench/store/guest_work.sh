# What the guest of store_inputs does, from moment to moment. Words between @ are filled in when its disk is made.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive HOME=/root LC_ALL=C.UTF-8

# In two steps, because packages that must be configured before others are unpacked come in no order here.
install() { dpkg --force-depends --unpack "$@"; dpkg --configure --pending; }
unpack() { for file in "$@"; do dpkg-deb -x "$file" /; done; }
# The host stops the machine, copies it, lets it go on, and says so by a line.
moment() { sync; echo "MOMENT $1"; read -r _; }

boot() { cat /etc/debian_version; }
packages() { @INSTALL@ /mnt/packages-1/*.deb > /var/log/packages-1; }
compiler() { @INSTALL@ /mnt/packages-2/*.deb > /var/log/packages-2; }
work() {
  mkdir -p /srv/work && cd /srv/work
  cp -r /usr/lib/python3.11/json /usr/lib/python3.11/email /usr/lib/python3.11/asyncio .
  git init -q . && git config user.name bench && git config user.email bench@localhost
  git add . && git commit -q -m "first"
  sed -i 's/import/import  /' json/*.py && git commit -q -a -m "second"
  python3 -m compileall -q /srv/work /usr/lib/python3.11
}
edit() {
  for file in /etc/*.conf; do echo "# edited" >> "$file"; done
  seq 1 20000 > /var/log/numbers
}
small() { echo "one line more" >> /var/log/numbers; }

for one in @MOMENTS@; do
  "$one"
  moment "$one"
done
