#include "host/registry.h"

#include <array>
#include <boost/json.hpp>

#include "base/clock.h"

namespace ramet::host {
namespace {

constexpr const char* kSchema = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE machines(
  id TEXT PRIMARY KEY, role TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
  template TEXT NOT NULL, template_digest TEXT NOT NULL DEFAULT '',
  parent_id TEXT, family_id TEXT NOT NULL, depth INTEGER NOT NULL,
  created_ns INTEGER NOT NULL, expires_ns INTEGER, labels TEXT NOT NULL, env TEXT NOT NULL,
  vcpus INTEGER NOT NULL, memory_mib INTEGER NOT NULL, disk_bytes INTEGER NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0,
  total_ms REAL NOT NULL DEFAULT 0, fork_ms REAL NOT NULL DEFAULT 0, identify_ms REAL NOT NULL DEFAULT 0, boot_ms REAL NOT NULL DEFAULT 0,
  pid INTEGER NOT NULL DEFAULT 0, pid_start INTEGER NOT NULL DEFAULT 0,
  ram_address INTEGER NOT NULL DEFAULT 0, ram_bytes INTEGER NOT NULL DEFAULT 0,
  base_image TEXT NOT NULL DEFAULT '', base_memory TEXT NOT NULL DEFAULT '', saved TEXT NOT NULL DEFAULT '',
  idle_seconds INTEGER NOT NULL DEFAULT 0, time_left_ns INTEGER);
CREATE TABLE overlays(id TEXT PRIMARY KEY, state TEXT NOT NULL);
CREATE TABLE chain(
  machine_id TEXT NOT NULL REFERENCES machines(id) ON DELETE CASCADE, position INTEGER NOT NULL,
  overlay_id TEXT NOT NULL REFERENCES overlays(id), PRIMARY KEY(machine_id, position));
CREATE INDEX chain_overlay ON chain(overlay_id);
CREATE TABLE operations(id TEXT PRIMARY KEY, parent TEXT NOT NULL, parent_next TEXT NOT NULL, started_ns INTEGER NOT NULL);
CREATE TABLE operation_children(operation_id TEXT NOT NULL REFERENCES operations(id) ON DELETE CASCADE,
  position INTEGER NOT NULL, machine_id TEXT NOT NULL, overlay_id TEXT NOT NULL, PRIMARY KEY(operation_id, position));
)sql";

constexpr const char* kMachineColumns =
    "id,role,state,reason,template,template_digest,parent_id,family_id,depth,created_ns,expires_ns,labels,env,vcpus,memory_mib,"
    "disk_bytes,generation,total_ms,fork_ms,identify_ms,boot_ms,pid,pid_start,ram_address,ram_bytes,base_image,base_memory,"
    "saved,idle_seconds,time_left_ns";

const char* role_name(MachineRole r) {
  switch (r) {
    case MachineRole::kZygote: return "zygote";
    case MachineRole::kBuilder: return "builder";
    case MachineRole::kFrozen: return "frozen";
    case MachineRole::kAside: return "aside";
    case MachineRole::kSandbox: break;
  }
  return "sandbox";
}
MachineRole role_of(const std::string& s) {
  for (const MachineRole role : {MachineRole::kZygote, MachineRole::kBuilder, MachineRole::kFrozen, MachineRole::kAside})
    if (s == role_name(role)) return role;
  return MachineRole::kSandbox;
}
SandboxState state_of(const std::string& s) {
  for (const SandboxState state : {SandboxState::kCreating, SandboxState::kRunning, SandboxState::kPausing,
                                   SandboxState::kPaused, SandboxState::kResuming, SandboxState::kGone})
    if (s == state_name(state)) return state;
  return SandboxState::kFailed;
}
const char* overlay_state_name(OverlayState s) {
  switch (s) {
    case OverlayState::kWritable: return "writable";
    case OverlayState::kFrozen: return "frozen";
    case OverlayState::kSealed: return "sealed";
    case OverlayState::kDoomed: break;
  }
  return "doomed";
}
OverlayState overlay_state_of(const std::string& s) {
  if (s == "writable") return OverlayState::kWritable;
  if (s == "frozen") return OverlayState::kFrozen;
  return s == "sealed" ? OverlayState::kSealed : OverlayState::kDoomed;
}

std::string to_json(const std::map<std::string, std::string>& map) {
  boost::json::object o;
  for (const auto& [k, v] : map) o[k] = v;
  return boost::json::serialize(o);
}
std::map<std::string, std::string> from_json(const std::string& text) {
  std::map<std::string, std::string> out;
  boost::system::error_code ec;
  const boost::json::value v = boost::json::parse(text, ec);
  if (ec || !v.is_object()) return out;
  for (const auto& kv : v.get_object())
    if (kv.value().is_string()) out.emplace(kv.key(), kv.value().get_string());
  return out;
}

MachineRow read_machine(const SqlStatement& s) {
  MachineRow r;
  int c = 0;
  r.info.id = s.text_at(c++);
  r.role = role_of(s.text_at(c++));
  r.info.state = state_of(s.text_at(c++));
  r.info.state_reason = s.text_at(c++);
  r.info.template_name = s.text_at(c++);
  r.template_digest = s.text_at(c++);
  r.info.parent_id = s.maybe_text_at(c++);
  r.info.family_id = s.text_at(c++);
  r.info.depth = static_cast<uint32_t>(s.int_at(c++));
  r.info.created_at_ns = s.int_at(c++);
  r.info.expires_at_ns = s.maybe_int_at(c++);
  r.info.labels = from_json(s.text_at(c++));
  r.info.env = from_json(s.text_at(c++));
  r.info.vcpus = static_cast<uint32_t>(s.int_at(c++));
  r.info.memory_mib = static_cast<uint64_t>(s.int_at(c++));
  r.info.disk_bytes = static_cast<uint64_t>(s.int_at(c++));
  r.info.generation = static_cast<uint32_t>(s.int_at(c++));
  r.info.timing.total_ms = s.double_at(c++);
  r.info.timing.fork_ms = s.double_at(c++);
  r.info.timing.identify_ms = s.double_at(c++);
  r.info.timing.template_boot_ms = s.double_at(c++);
  r.pid = s.int_at(c++);
  r.pid_start = static_cast<uint64_t>(s.int_at(c++));
  r.ram_address = static_cast<uint64_t>(s.int_at(c++));
  r.ram_bytes = static_cast<uint64_t>(s.int_at(c++));
  r.base_image = s.text_at(c++);
  r.base_memory = s.text_at(c++);
  r.saved = s.text_at(c++);
  r.info.idle_seconds = static_cast<uint64_t>(s.int_at(c++));
  r.time_left_ns = s.maybe_int_at(c++);
  return r;
}

}  // namespace

Result<std::unique_ptr<Registry>> Registry::open(const std::string& path) {
  TRY_ASSIGN(SqlDatabase db, SqlDatabase::open(path));
  std::unique_ptr<Registry> r(new Registry(std::move(db)));
  TRY_ASSIGN(SqlStatement s, r->db_.prepare("SELECT count(*) FROM sqlite_master WHERE name='meta'"));
  TRY(s.step());
  r->db_.set_space_aside();
  if (s.int_at(0) == 0) {
    TRY(r->create_schema());
    return r;
  }
  TRY_ASSIGN(SqlStatement v, r->db_.prepare("SELECT value FROM meta WHERE key='schema'"));
  TRY_ASSIGN(const bool row, v.step());
  if (!row) return fail(ErrorKind::kCorrupt, "registry " + path + " has no schema version");
  int version = std::atoi(v.text_at(0).c_str());
  const std::array upgrades = {&Registry::upgrade_from_1, &Registry::upgrade_from_2, &Registry::upgrade_from_3};
  for (; version >= 1 && version < kSchemaVersion; version++) TRY((r.get()->*upgrades[static_cast<size_t>(version - 1)])());
  if (version != kSchemaVersion)
    return fail(ErrorKind::kUnsupported, "registry " + path + " has schema version " + std::to_string(version) +
                                             ", this program knows " + std::to_string(kSchemaVersion));
  return r;
}

Status Registry::create_schema() {
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY(db_.exec(kSchema));
  TRY_ASSIGN(SqlStatement s, db_.prepare("INSERT INTO meta VALUES('schema',?)"));
  TRY(s.bind(std::string_view(std::to_string(kSchemaVersion))).run());
  return t.commit();
}

// Its machines have raw bases.
Status Registry::upgrade_from_1() {
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY(db_.exec("ALTER TABLE machines ADD COLUMN base_image TEXT NOT NULL DEFAULT ''"));
  TRY(db_.exec("UPDATE meta SET value='2' WHERE key='schema'"));
  return t.commit();
}

// Nothing was paused, and what memory stands on is not in the store.
Status Registry::upgrade_from_2() {
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY(db_.exec("ALTER TABLE machines ADD COLUMN base_memory TEXT NOT NULL DEFAULT ''"));
  TRY(db_.exec("ALTER TABLE machines ADD COLUMN saved TEXT NOT NULL DEFAULT ''"));
  TRY(db_.exec("UPDATE meta SET value='3' WHERE key='schema'"));
  return t.commit();
}

// Nothing was paused by itself, and what a paused one has left of its time stands in its saved state.
Status Registry::upgrade_from_3() {
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY(db_.exec("ALTER TABLE machines ADD COLUMN idle_seconds INTEGER NOT NULL DEFAULT 0"));
  TRY(db_.exec("ALTER TABLE machines ADD COLUMN time_left_ns INTEGER"));
  TRY(db_.exec("UPDATE meta SET value='4' WHERE key='schema'"));
  return t.commit();
}

Result<bool> Registry::note_boot(const std::string& boot_id) {
  const std::lock_guard lock(mutex_);
  std::optional<std::string> last;
  {
    TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT value FROM meta WHERE key='boot_id'"));
    TRY_ASSIGN(const bool row, s.step());
    if (row) last = s.text_at(0);
  }
  TRY_ASSIGN(SqlStatement w,
             db_.prepare("INSERT INTO meta VALUES('boot_id',?) ON CONFLICT(key) DO UPDATE SET value=excluded.value"));
  TRY(w.bind(std::string_view(boot_id)).run());
  return last && *last != boot_id;
}

Status Registry::insert_machine(const MachineRow& row) {
  const SandboxInfo& i = row.info;
  TRY_ASSIGN(SqlStatement s, db_.prepare(std::string("INSERT INTO machines(") + kMachineColumns +
                                         ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  s.bind(std::string_view(i.id)).bind(std::string_view(role_name(row.role))).bind(std::string_view(state_name(i.state)));
  s.bind(std::string_view(i.state_reason)).bind(std::string_view(i.template_name)).bind(std::string_view(row.template_digest));
  s.bind(i.parent_id).bind(std::string_view(i.family_id)).bind(int64_t{i.depth}).bind(i.created_at_ns).bind(i.expires_at_ns);
  s.bind(std::string_view(to_json(i.labels))).bind(std::string_view(to_json(i.env))).bind(int64_t{i.vcpus});
  s.bind(static_cast<int64_t>(i.memory_mib)).bind(static_cast<int64_t>(i.disk_bytes)).bind(int64_t{i.generation});
  s.bind(i.timing.total_ms).bind(i.timing.fork_ms).bind(i.timing.identify_ms).bind(i.timing.template_boot_ms);
  s.bind(row.pid).bind(static_cast<int64_t>(row.pid_start)).bind(static_cast<int64_t>(row.ram_address));
  s.bind(static_cast<int64_t>(row.ram_bytes)).bind(std::string_view(row.base_image)).bind(std::string_view(row.base_memory));
  return s.bind(std::string_view(row.saved)).bind(static_cast<int64_t>(i.idle_seconds)).bind(row.time_left_ns).run();
}

Status Registry::insert_overlay(const std::string& id, OverlayState state) {
  TRY_ASSIGN(SqlStatement s, db_.prepare("INSERT INTO overlays VALUES(?,?)"));
  return s.bind(std::string_view(id)).bind(std::string_view(overlay_state_name(state))).run();
}

Status Registry::append_chain(const std::string& machine_id, const std::string& overlay_id) {
  TRY_ASSIGN(
      SqlStatement s,
      db_.prepare("INSERT INTO chain VALUES(?1,(SELECT coalesce(max(position),-1)+1 FROM chain WHERE machine_id=?1),?2)"));
  return s.bind(std::string_view(machine_id)).bind(std::string_view(overlay_id)).run();
}

Result<std::vector<std::string>> Registry::chain_locked(const std::string& machine_id) {
  TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT overlay_id FROM chain WHERE machine_id=? ORDER BY position"));
  s.bind(std::string_view(machine_id));
  std::vector<std::string> out;
  TRY(s.each([&] { out.push_back(s.text_at(0)); }));
  return out;
}

Status Registry::add_machine(const MachineRow& row, const std::vector<std::string>& frozen, const std::string& writable) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY(insert_machine(row));
  for (const std::string& id : frozen) TRY(append_chain(row.info.id, id));
  if (!writable.empty()) {
    TRY(insert_overlay(writable, OverlayState::kWritable));
    TRY(append_chain(row.info.id, writable));
  }
  return t.commit();
}

Status Registry::begin_fork(const ForkIntent& intent) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY(insert_operation(intent));
  for (size_t i = 0; i < intent.children.size(); i++) {
    TRY(insert_machine(intent.children[i]));
    TRY(add_child(intent, i));
  }
  return t.commit();
}

Status Registry::begin_resume(const ForkIntent& intent) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY(insert_operation(intent));
  for (size_t i = 0; i < intent.children.size(); i++) {
    TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET state='resuming' WHERE id=?"));
    TRY(s.bind(std::string_view(intent.children[i].info.id)).run());
    TRY(add_child(intent, i));
  }
  return t.commit();
}

Status Registry::insert_operation(const ForkIntent& intent) {
  TRY_ASSIGN(SqlStatement op, db_.prepare("INSERT INTO operations VALUES(?,?,?,?)"));
  TRY(op.bind(std::string_view(intent.id))
          .bind(std::string_view(intent.parent))
          .bind(std::string_view(intent.parent_next))
          .bind(wall_ns())
          .run());
  return intent.parent_next.empty() ? Status() : insert_overlay(intent.parent_next, OverlayState::kWritable);
}

// Its row is there; it gets what its parent stands on.
Status Registry::add_child(const ForkIntent& intent, size_t index) {
  const std::string &id = intent.children[index].info.id, &overlay = intent.child_overlays[index];
  TRY_ASSIGN(SqlStatement b, db_.prepare("UPDATE machines SET (base_image,base_memory)="
                                         "(SELECT base_image,base_memory FROM machines WHERE id=?1) WHERE id=?2"));
  TRY(b.bind(std::string_view(intent.parent)).bind(std::string_view(id)).run());
  TRY_ASSIGN(const std::vector<std::string> base, chain_locked(intent.parent));
  for (const std::string& o : base) TRY(append_chain(id, o));
  if (!overlay.empty()) {
    TRY(insert_overlay(overlay, OverlayState::kWritable));
    TRY(append_chain(id, overlay));
  }
  TRY_ASSIGN(SqlStatement c, db_.prepare("INSERT INTO operation_children VALUES(?,?,?,?)"));
  c.bind(std::string_view(intent.id)).bind(static_cast<int64_t>(index));
  return c.bind(std::string_view(id)).bind(std::string_view(overlay)).run();
}

Result<MachineBases> Registry::bases(const std::string& machine_id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT base_image,base_memory,saved FROM machines WHERE id=?"));
  TRY_ASSIGN(const bool row, s.bind(std::string_view(machine_id)).step());
  return row ? MachineBases{s.text_at(0), s.text_at(1), s.text_at(2)} : MachineBases{};
}

Status Registry::set_state(const std::string& id, SandboxState state) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET state=? WHERE id=?"));
  return s.bind(std::string_view(state_name(state))).bind(std::string_view(id)).run();
}

Status Registry::set_paused(const std::string& id, const std::string& snapshot_id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s,
             db_.prepare("UPDATE machines SET state='paused',saved=?1,base_image=?1,base_memory=?1 WHERE id=?2"));
  return s.bind(std::string_view(snapshot_id)).bind(std::string_view(id)).run();
}

Status Registry::move_chain(const std::string& from, const std::string& to) {
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE chain SET machine_id=? WHERE machine_id=?"));
  return s.bind(std::string_view(to)).bind(std::string_view(from)).run();
}

Status Registry::set_aside(const std::string& id, const std::string& aside_id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY_ASSIGN(MachineRow aside, machine_locked(id));
  aside.role = MachineRole::kAside;
  aside.info.id = aside_id;
  aside.info.parent_id = id;
  TRY(insert_machine(aside));
  TRY(move_chain(id, aside_id));
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET state='resuming',pid=0,pid_start=0 WHERE id=?"));
  TRY(s.bind(std::string_view(id)).run());
  return t.commit();
}

Status Registry::bring_back(const std::string& id, const std::string& aside_id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY_ASSIGN(SqlStatement c, db_.prepare("DELETE FROM chain WHERE machine_id=?"));
  TRY(c.bind(std::string_view(id)).run());
  TRY(move_chain(aside_id, id));
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET state='pausing',"
                                         "(pid,pid_start,ram_address,ram_bytes,generation,base_image,base_memory)="
                                         "(SELECT pid,pid_start,ram_address,ram_bytes,generation,base_image,base_memory"
                                         " FROM machines WHERE id=?1) WHERE id=?2"));
  TRY(s.bind(std::string_view(aside_id)).bind(std::string_view(id)).run());
  TRY_ASSIGN(SqlStatement d, db_.prepare("DELETE FROM machines WHERE id=?"));
  TRY(d.bind(std::string_view(aside_id)).run());
  return t.commit();
}

Result<std::string> Registry::base_image(const std::string& machine_id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT base_image FROM machines WHERE id=?"));
  TRY_ASSIGN(const bool row, s.bind(std::string_view(machine_id)).step());
  return row ? s.text_at(0) : std::string();
}

Status Registry::settle_fork(const std::string& operation_id, bool swapped) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  std::string parent, next;
  {
    TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT parent,parent_next FROM operations WHERE id=?"));
    TRY_ASSIGN(const bool row, s.bind(std::string_view(operation_id)).step());
    if (!row) return t.commit();
    parent = s.text_at(0);
    next = s.text_at(1);
  }
  TRY_ASSIGN(const std::vector<std::string> chain, chain_locked(parent));
  if (!next.empty() && !chain.empty()) {
    const std::string& current = chain.back();
    if (swapped) {
      TRY_ASSIGN(SqlStatement f, db_.prepare("UPDATE overlays SET state='frozen' WHERE id=? AND state='writable'"));
      TRY(f.bind(std::string_view(current)).run());
      TRY(append_chain(parent, next));
    } else {
      // The children never saw the parent's current overlay (it held nothing): only the parent keeps it.
      TRY_ASSIGN(SqlStatement d, db_.prepare("DELETE FROM chain WHERE overlay_id=?1 AND machine_id IN"
                                             "(SELECT machine_id FROM operation_children WHERE operation_id=?2)"));
      TRY(d.bind(std::string_view(current)).bind(std::string_view(operation_id)).run());
    }
  }
  if (!next.empty() && (!swapped || chain.empty())) {
    TRY_ASSIGN(SqlStatement d, db_.prepare("UPDATE overlays SET state='doomed' WHERE id=?"));
    TRY(d.bind(std::string_view(next)).run());
  }
  TRY_ASSIGN(SqlStatement e, db_.prepare("DELETE FROM operations WHERE id=?"));
  TRY(e.bind(std::string_view(operation_id)).run());
  return t.commit();
}

Status Registry::set_process(const std::string& id, int64_t pid, uint64_t pid_start, uint64_t ram_address, uint64_t ram_bytes,
                             uint32_t generation) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s,
             db_.prepare("UPDATE machines SET pid=?,pid_start=?,ram_address=?,ram_bytes=?,generation=? WHERE id=?"));
  s.bind(pid)
      .bind(static_cast<int64_t>(pid_start))
      .bind(static_cast<int64_t>(ram_address))
      .bind(static_cast<int64_t>(ram_bytes));
  return s.bind(int64_t{generation}).bind(std::string_view(id)).run();
}

Status Registry::set_running(const std::vector<SandboxInfo>& infos) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  for (const SandboxInfo& i : infos) {
    TRY_ASSIGN(
        SqlStatement s,
        db_.prepare(
            "UPDATE machines SET state='running',reason='',saved='',time_left_ns=NULL,total_ms=?,fork_ms=?,identify_ms=?,"
            "boot_ms=? WHERE id=?"));
    s.bind(i.timing.total_ms).bind(i.timing.fork_ms).bind(i.timing.identify_ms).bind(i.timing.template_boot_ms);
    TRY(s.bind(std::string_view(i.id)).run());
  }
  return t.commit();
}

Status Registry::set_ended(const std::string& id, SandboxState state, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET state=?,reason=? WHERE id=?"));
  return s.bind(std::string_view(state_name(state))).bind(std::string_view(reason)).bind(std::string_view(id)).run();
}

Status Registry::release_machine(const std::string& id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET pid=0,pid_start=0 WHERE id=?"));
  TRY(s.bind(std::string_view(id)).run());
  TRY_ASSIGN(SqlStatement c, db_.prepare("DELETE FROM chain WHERE machine_id=?"));
  TRY(c.bind(std::string_view(id)).run());
  return t.commit();
}

Status Registry::set_expiry(const std::string& id, std::optional<int64_t> expires_at_ns) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET expires_ns=? WHERE id=?"));
  return s.bind(expires_at_ns).bind(std::string_view(id)).run();
}
Status Registry::set_time_left(const std::string& id, int64_t time_left_ns) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET time_left_ns=? WHERE id=?"));
  return s.bind(time_left_ns).bind(std::string_view(id)).run();
}
Status Registry::set_idle(const std::string& id, uint64_t idle_seconds) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET idle_seconds=? WHERE id=?"));
  return s.bind(static_cast<int64_t>(idle_seconds)).bind(std::string_view(id)).run();
}
Status Registry::set_labels(const std::string& id, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE machines SET labels=? WHERE id=?"));
  return s.bind(std::string_view(to_json(labels))).bind(std::string_view(id)).run();
}
Status Registry::delete_machine(const std::string& id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("DELETE FROM machines WHERE id=?"));
  return s.bind(std::string_view(id)).run();
}

Status Registry::add_merged(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return insert_overlay(id, OverlayState::kFrozen);
}

Status Registry::set_frozen(const std::string& machine_id, const std::vector<std::string>& frozen) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY_ASSIGN(const std::vector<std::string> chain, chain_locked(machine_id));
  if (chain.empty()) return fail(ErrorKind::kNotFound, machine_id + " has no overlays");
  TRY_ASSIGN(SqlStatement d, db_.prepare("DELETE FROM chain WHERE machine_id=?"));
  TRY(d.bind(std::string_view(machine_id)).run());
  for (const std::string& id : frozen) TRY(append_chain(machine_id, id));
  TRY(append_chain(machine_id, chain.back()));
  return t.commit();
}

Status Registry::set_overlay_state(const std::string& id, OverlayState state) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("UPDATE overlays SET state=? WHERE id=? AND state<>'doomed'"));
  return s.bind(std::string_view(overlay_state_name(state))).bind(std::string_view(id)).run();
}
Status Registry::delete_overlay(const std::string& id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("DELETE FROM overlays WHERE id=?"));
  return s.bind(std::string_view(id)).run();
}

Result<std::vector<MachineRow>> Registry::machines() {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare(std::string("SELECT ") + kMachineColumns + " FROM machines ORDER BY created_ns,id"));
  std::vector<MachineRow> out;
  TRY(s.each([&] { out.push_back(read_machine(s)); }));
  return out;
}

Result<MachineRow> Registry::machine(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return machine_locked(id);
}

Result<MachineRow> Registry::machine_locked(const std::string& id) {
  TRY_ASSIGN(SqlStatement s, db_.prepare(std::string("SELECT ") + kMachineColumns + " FROM machines WHERE id=?"));
  TRY_ASSIGN(const bool row, s.bind(std::string_view(id)).step());
  if (!row) return fail(ErrorKind::kNotFound, "there is no row of machine '" + id + "'");
  return read_machine(s);
}

Result<std::vector<OverlayRow>> Registry::overlays() {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT id,state FROM overlays ORDER BY id"));
  std::vector<OverlayRow> out;
  TRY(s.each([&] { out.push_back({s.text_at(0), overlay_state_of(s.text_at(1))}); }));
  return out;
}

Result<std::vector<std::string>> Registry::chain(const std::string& machine_id) {
  const std::lock_guard lock(mutex_);
  return chain_locked(machine_id);
}

Result<std::vector<OverlayRow>> Registry::chain_rows(const std::string& machine_id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(
      SqlStatement s,
      db_.prepare(
          "SELECT o.id,o.state FROM chain c JOIN overlays o ON o.id=c.overlay_id WHERE c.machine_id=? ORDER BY c.position"));
  s.bind(std::string_view(machine_id));
  std::vector<OverlayRow> out;
  TRY(s.each([&] { out.push_back({s.text_at(0), overlay_state_of(s.text_at(1))}); }));
  return out;
}

Result<std::vector<PendingFork>> Registry::pending_forks() {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT id,parent,parent_next FROM operations ORDER BY started_ns"));
  std::vector<PendingFork> out;
  TRY(s.each([&] { out.push_back({s.text_at(0), s.text_at(1), s.text_at(2), {}}); }));
  for (PendingFork& f : out) {
    TRY_ASSIGN(SqlStatement c, db_.prepare("SELECT machine_id FROM operation_children WHERE operation_id=? ORDER BY position"));
    c.bind(std::string_view(f.id));
    TRY(c.each([&] { f.children.push_back(c.text_at(0)); }));
  }
  return out;
}

Result<std::vector<std::string>> Registry::doom_unused() {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction t, SqlTransaction::begin(db_));
  TRY(
      db_.exec("UPDATE overlays SET state='doomed' WHERE id NOT IN (SELECT overlay_id FROM chain)"
               " AND id NOT IN (SELECT parent_next FROM operations)"));
  std::vector<std::string> out;
  {
    TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT id FROM overlays WHERE state='doomed' ORDER BY id"));
    TRY(s.each([&] { out.push_back(s.text_at(0)); }));
  }
  TRY(t.commit());
  return out;
}

Result<std::vector<std::string>> Registry::unsealed() {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement s, db_.prepare("SELECT id FROM overlays WHERE state='frozen' ORDER BY id"));
  std::vector<std::string> out;
  TRY(s.each([&] { out.push_back(s.text_at(0)); }));
  return out;
}

}  // namespace ramet::host
