// base/utf8_names.h - while it lives, this thread's names are UTF-8: libarchive converts them to the locale's charset, and
// they are to stay as they are. Thread: the one that made it.
#pragma once

#include <locale.h>

namespace ramet {

class Utf8Names {
 public:
  Utf8Names() : utf8_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(utf8_ ? ::uselocale(utf8_) : nullptr) {}
  ~Utf8Names() {
    if (!utf8_) return;
    ::uselocale(before_);
    ::freelocale(utf8_);
  }
  // Whether this computer has such a locale.
  bool in_effect() const { return utf8_ != nullptr; }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;

 private:
  locale_t utf8_, before_;
};

}  // namespace ramet
