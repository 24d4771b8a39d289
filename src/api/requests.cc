#include "api/requests.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>

#include "api/utf8.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

constexpr size_t kMaxPathBytes = 4095;
constexpr size_t kMaxNameBytes = 63;
constexpr size_t kMaxArgumentBytes = 128 * 1024;  // MAX_ARG_STRLEN of Linux
constexpr FieldReader::MapLimits kLabelLimits{64, 63, 255};
constexpr FieldReader::MapLimits kEnvLimits{1024, 255, kMaxArgumentBytes};

void read_ttl(FieldReader& r, std::optional<uint64_t>* out) {
  std::optional<int64_t> ttl;
  r.integer("ttl_seconds", &ttl, {0, kMaxTtlSeconds});
  if (ttl) *out = static_cast<uint64_t>(*ttl);
}

void read_idle(FieldReader& r, std::optional<uint64_t>* out) {
  std::optional<int64_t> idle;
  r.integer("idle_seconds", &idle, {0, kMaxTtlSeconds});
  if (idle) *out = static_cast<uint64_t>(*idle);
}

void read_env(FieldReader& r, StringMap* out) {
  std::optional<StringMap> env;
  r.string_map("env", &env, kEnvLimits);
  if (!env) return;
  for (const auto& [name, value] : *env)
    if (name.find('=') != std::string::npos) r.fail("field `env." + name + "`: the name of a variable may not hold `=`");
  *out = std::move(*env);
}

void read_path(FieldReader& r, std::string_view name, std::string* out) {
  std::optional<std::string> path;
  r.string(name, &path, kMaxPathBytes, FieldReader::Need::kRequired);
  if (path && !path->starts_with('/'))
    r.fail("field `" + std::string(name) + "` must be an absolute path, not `" + *path + "`");
  if (path) *out = std::move(*path);
}

void read_size(FieldReader& r, host::WindowSize* out) {
  std::optional<int64_t> rows, cols;
  r.integer("rows", &rows, {1, 65535}, FieldReader::Need::kRequired);
  r.integer("cols", &cols, {1, 65535}, FieldReader::Need::kRequired);
  if (rows) out->rows = static_cast<uint32_t>(*rows);
  if (cols) out->cols = static_cast<uint32_t>(*cols);
}

void read_stdin(FieldReader& r, ExecRequest* out) {
  std::optional<std::string> text;
  // A NUL byte is legal in what a command reads, so this does not go through FieldReader::string.
  if (const json::value* value = r.any("stdin"); value != nullptr) {
    if (!value->is_string()) return r.fail("field `stdin` must be a string");
    text = std::string(value->get_string().data(), value->get_string().size());
  }
  size_t encoding = 0;
  r.word("stdin_encoding", {"utf-8", "base64"}, &encoding);
  if (!text) return;
  if (encoding == 1) {
    text = base64_decode(*text);
    if (!text) return r.fail("field `stdin` is not base64");
  }
  out->stdin_bytes = std::move(*text);
}

void read_pty(FieldReader& r, std::optional<host::WindowSize>* out) {
  const json::value* pty = r.any("pty");
  if (pty == nullptr) return;
  if (!pty->is_object()) return r.fail("field `pty` must be an object with `rows` and `cols`");
  FieldReader size(pty->get_object());
  out->emplace();
  read_size(size, &**out);
  if (const Status s = size.finish(); !s) r.fail("field `pty`: " + s.error().message());
}

struct SignalName {
  std::string_view name;
  int number;
};
constexpr std::array kSignals = {
    SignalName{"HUP", SIGHUP},   SignalName{"INT", SIGINT},   SignalName{"QUIT", SIGQUIT},   SignalName{"ILL", SIGILL},
    SignalName{"TRAP", SIGTRAP}, SignalName{"ABRT", SIGABRT}, SignalName{"BUS", SIGBUS},     SignalName{"FPE", SIGFPE},
    SignalName{"KILL", SIGKILL}, SignalName{"USR1", SIGUSR1}, SignalName{"SEGV", SIGSEGV},   SignalName{"USR2", SIGUSR2},
    SignalName{"PIPE", SIGPIPE}, SignalName{"ALRM", SIGALRM}, SignalName{"TERM", SIGTERM},   SignalName{"CHLD", SIGCHLD},
    SignalName{"CONT", SIGCONT}, SignalName{"STOP", SIGSTOP}, SignalName{"TSTP", SIGTSTP},   SignalName{"TTIN", SIGTTIN},
    SignalName{"TTOU", SIGTTOU}, SignalName{"URG", SIGURG},   SignalName{"WINCH", SIGWINCH}, SignalName{"IO", SIGIO},
};

template <class Int>
std::optional<Int> whole_number(std::string_view text, int base = 10) {
  Int value{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (ec != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

Result<host::CreateOptions> decode_create(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  host::CreateOptions out;
  std::optional<std::string> name, snapshot;
  std::optional<int64_t> vcpus, memory;
  std::optional<uint64_t> idle;
  std::optional<StringMap> labels;
  r.string("template", &name, kMaxNameBytes);
  r.string("snapshot", &snapshot, kMaxNameBytes);
  r.integer("vcpus", &vcpus, {1, 16});
  r.integer("memory_mib", &memory, {64, 1 << 20});
  read_ttl(r, &out.ttl_seconds);
  read_idle(r, &idle);
  r.string_map("labels", &labels, kLabelLimits);
  read_env(r, &out.env);
  TRY(r.finish());
  if (name.has_value() == snapshot.has_value())
    return fail(ErrorKind::kInvalid, "either field `template` or field `snapshot` says what the sandbox is made from");
  if (name) TRY(check_template_name(*name));
  out.template_name = name.value_or("");
  out.snapshot = snapshot.value_or("");
  out.idle_seconds = idle.value_or(0);
  if (snapshot && (vcpus || memory))
    return fail(ErrorKind::kInvalid,
                "fields `vcpus` and `memory_mib` do not go with `snapshot`: the sandbox is as large as that");
  if (vcpus) out.vcpus = static_cast<uint32_t>(*vcpus);
  if (memory) out.memory_mib = static_cast<uint64_t>(*memory);
  if (labels) out.labels = std::move(*labels);
  return out;
}

Result<host::PatchOptions> decode_patch(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  host::PatchOptions out;
  read_ttl(r, &out.ttl_seconds);
  read_idle(r, &out.idle_seconds);
  r.string_map("labels", &out.labels, kLabelLimits);
  TRY(r.finish());
  return out;
}

Result<host::ForkOptions> decode_fork(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  host::ForkOptions out;
  std::optional<int64_t> n;
  size_t mode = 0;
  bool strict = true;
  r.integer("n", &n, {1, kMaxChildren});
  r.word("mode", {"all", "partial"}, &mode);
  r.boolean("strict", &strict);
  read_ttl(r, &out.ttl_seconds);
  r.string_map("labels", &out.labels, kLabelLimits);
  TRY(r.finish());
  if (n) out.count = static_cast<uint32_t>(*n);
  out.mode = mode == 1 ? host::ForkMode::kPartial : host::ForkMode::kAll;
  out.strictness = strict ? host::ForkStrictness::kStrict : host::ForkStrictness::kLoose;
  return out;
}

namespace {

void read_keep(FieldReader& r, std::optional<uint64_t>* out) {
  std::optional<int64_t> keep;
  r.integer("keep_seconds", &keep, {0, kMaxKeepSeconds});
  if (keep) *out = static_cast<uint64_t>(*keep);
}

}  // namespace

Result<host::SnapshotOptions> decode_snapshot(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  host::SnapshotOptions out;
  std::optional<std::string> name;
  std::optional<StringMap> labels;
  bool strict = true;
  r.string("name", &name, 64);
  r.boolean("strict", &strict);
  r.boolean("drop_caches", &out.drop_caches);
  read_keep(r, &out.keep_seconds);
  r.string_map("labels", &labels, kLabelLimits);
  TRY(r.finish());
  out.name = name.value_or("");
  out.strictness = strict ? host::ForkStrictness::kStrict : host::ForkStrictness::kLoose;
  if (labels) out.labels = std::move(*labels);
  return out;
}

Result<host::SnapshotPatch> decode_snapshot_patch(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  host::SnapshotPatch out;
  r.string("name", &out.name, 64);
  read_keep(r, &out.keep_seconds);
  r.string_map("labels", &out.labels, kLabelLimits);
  TRY(r.finish());
  return out;
}

Result<host::SaveTemplateOptions> decode_save_template(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  host::SaveTemplateOptions out;
  std::optional<std::string> snapshot;
  r.string("snapshot", &snapshot, kMaxNameBytes);
  read_env(r, &out.env);
  TRY(r.finish());
  if (!snapshot || snapshot->empty())
    return fail(ErrorKind::kInvalid, "field `snapshot` says which snapshot becomes the template");
  out.snapshot = std::move(*snapshot);
  return out;
}

Result<std::string> decode_rollback(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  std::optional<std::string> snapshot;
  r.string("snapshot", &snapshot, 64, FieldReader::Need::kRequired);
  TRY(r.finish());
  return *std::move(snapshot);
}

Result<ExecRequest> decode_exec(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  ExecRequest out;
  std::optional<std::string> command, cwd, user, term, tag;
  std::optional<std::vector<std::string>> argv;
  std::optional<double> timeout;
  r.string("command", &command, kMaxArgumentBytes);
  r.strings("argv", &argv, 4096, kMaxArgumentBytes);
  read_env(r, &out.options.env);
  r.string("cwd", &cwd, kMaxPathBytes);
  r.string("user", &user, kMaxNameBytes);
  read_stdin(r, &out);
  r.boolean("stdin_open", &out.keep_stdin_open);
  r.number("timeout_seconds", &timeout, 0, static_cast<double>(kMaxTtlSeconds));
  read_pty(r, &out.options.pty);
  r.string("term", &term, kMaxNameBytes);
  r.string("tag", &tag, kMaxNameBytes);
  r.boolean("stream", &out.stream);
  r.boolean("detach", &out.options.detach);
  TRY(r.finish());
  if (command && argv) return fail(ErrorKind::kInvalid, "both `command` and `argv` are given; give one of them");
  if (!command && !argv && !out.options.pty)
    return fail(ErrorKind::kInvalid, "neither `command` nor `argv` is given; only with `pty` this means the user's shell");
  if (command && command->empty()) return fail(ErrorKind::kInvalid, "field `command` is empty");
  if (argv && argv->front().empty()) return fail(ErrorKind::kInvalid, "field `argv`: the first entry, the program, is empty");
  if (cwd && !cwd->starts_with('/'))
    return fail(ErrorKind::kInvalid, "field `cwd` must be an absolute path, not `" + *cwd + "`");
  if (out.stream && out.options.detach) return fail(ErrorKind::kInvalid, "`stream` and `detach` exclude each other");
  if (out.options.detach && !out.stdin_bytes.empty())
    return fail(ErrorKind::kInvalid, "`stdin` and `detach` exclude each other; use `stdin_open` and POST .../stdin");
  if (out.keep_stdin_open && !out.stream && !out.options.detach)
    return fail(ErrorKind::kInvalid, "`stdin_open` needs `stream` or `detach`, else nobody knows the pid to write to");
  if (command) out.options.shell = std::move(*command);
  if (argv) out.options.argv = std::move(*argv);
  if (cwd) out.options.cwd = std::move(*cwd);
  if (user) out.options.user = std::move(*user);
  if (term) out.options.term = std::move(*term);
  if (tag) out.options.tag = std::move(*tag);
  if (timeout) out.options.timeout_ms = std::max<uint64_t>(1, static_cast<uint64_t>(*timeout * 1000));
  out.options.stdin_open = out.keep_stdin_open || !out.stdin_bytes.empty();
  return out;
}

Result<host::ImportOptions> decode_import(const Target& target) {
  host::ImportOptions options{.format = std::string(target.get("format")),
                              .parent = std::string(target.get("parent")),
                              .tag = std::string(target.get("tag"))};
  const std::string_view mib = target.get("disk_mib");
  if (mib.empty()) return options;
  TRY_ASSIGN(const uint64_t size, decode_offset(mib, "disk_mib"));
  if (size < kMinDiskMib || size > kMaxDiskMib)
    return fail(ErrorKind::kInvalid, "`disk_mib` is " + std::to_string(size) + ", the limits are " +
                                         std::to_string(kMinDiskMib) + " and " + std::to_string(kMaxDiskMib));
  options.disk_bytes = size << 20;
  return options;
}

Result<std::string> decode_commit(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  std::optional<std::string> name;
  r.string("name", &name, 64, FieldReader::Need::kRequired);
  TRY(r.finish());
  return *std::move(name);
}

Result<uint32_t> decode_signal(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  std::string text;
  const json::value* value = r.any("signal");
  TRY(r.finish());
  if (value == nullptr) return fail(ErrorKind::kInvalid, "field `signal` is missing");
  if (value->is_string()) return decode_signal_name(std::string_view(value->get_string().data(), value->get_string().size()));
  if (value->is_number()) return decode_signal_name(json::serialize(*value));
  return fail(ErrorKind::kInvalid, "field `signal` must be a name or a number");
}

Result<host::WindowSize> decode_terminal_size(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  host::WindowSize out;
  read_size(r, &out);
  TRY(r.finish());
  return out;
}

Result<MkdirRequest> decode_mkdir(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  MkdirRequest out;
  std::optional<std::string> mode, user;
  read_path(r, "path", &out.path);
  r.boolean("parents", &out.parents);
  r.string("mode", &mode, 5);
  r.string("user", &user, kMaxNameBytes);
  TRY(r.finish());
  if (mode) {
    TRY_ASSIGN(out.permissions, decode_mode(*mode));
  }
  if (user) out.user = std::move(*user);
  return out;
}

Result<MoveRequest> decode_move(std::string_view body) {
  TRY_ASSIGN(const json::object object, parse_json_object(body));
  FieldReader r(object);
  MoveRequest out;
  read_path(r, "from", &out.from);
  read_path(r, "to", &out.to);
  std::optional<std::string> user;
  r.string("user", &user, kMaxNameBytes);
  TRY(r.finish());
  if (user) out.user = std::move(*user);
  return out;
}

Result<std::string> check_guest_path(std::string_view path, std::string_view field) {
  const std::string name(field);
  if (path.empty()) return fail(ErrorKind::kInvalid, "`" + name + "` is missing");
  if (!path.starts_with('/'))
    return fail(ErrorKind::kInvalid,
                "`" + name + "` must be an absolute path, not `" + to_valid_utf8(path.substr(0, 80)) + "`");
  if (path.size() > kMaxPathBytes)
    return fail(ErrorKind::kInvalid,
                "`" + name + "` has " + std::to_string(path.size()) + " bytes, the limit is " + std::to_string(kMaxPathBytes));
  if (path.find('\0') != std::string_view::npos) return fail(ErrorKind::kInvalid, "`" + name + "` holds a NUL byte");
  return std::string(path);
}

Result<uint32_t> decode_mode(std::string_view text) {
  const std::optional<uint32_t> mode = whole_number<uint32_t>(text, 8);
  if (!mode || *mode > 07777 || text.size() > 5)
    return fail(ErrorKind::kInvalid,
                "`mode` must be octal permission bits from 0 to 7777, not `" + to_valid_utf8(text.substr(0, 20)) + "`");
  return *mode;
}

Result<uint32_t> decode_pid(std::string_view text) {
  constexpr uint32_t kMaxPid = 4194304;  // PID_MAX_LIMIT of Linux
  const std::optional<uint32_t> pid = whole_number<uint32_t>(text);
  if (!pid || *pid < 1 || *pid > kMaxPid)
    return fail(ErrorKind::kInvalid,
                "the process id must be from 1 to 4194304, not `" + to_valid_utf8(text.substr(0, 20)) + "`");
  return *pid;
}

Result<uint32_t> decode_signal_name(std::string_view text) {
  constexpr uint32_t kMaxSignal = 64;
  if (const std::optional<uint32_t> number = whole_number<uint32_t>(text)) {
    if (*number >= 1 && *number <= kMaxSignal) return *number;
    return fail(ErrorKind::kInvalid, "signal " + std::to_string(*number) + " is not in 1 to 64");
  }
  std::string_view name = text;
  if (name.starts_with("SIG")) name.remove_prefix(3);
  const auto* it = std::find_if(kSignals.begin(), kSignals.end(), [&](const SignalName& s) { return s.name == name; });
  if (it == kSignals.end())
    return fail(ErrorKind::kInvalid,
                "signal `" + to_valid_utf8(text.substr(0, 20)) + "` is not known; give TERM, SIGTERM or 15");
  return static_cast<uint32_t>(it->number);
}

Result<uint64_t> decode_offset(std::string_view text, std::string_view field) {
  if (text.empty()) return 0;
  const std::optional<uint64_t> value = whole_number<uint64_t>(text);
  if (value && *value <= static_cast<uint64_t>(INT64_MAX)) return *value;
  return fail(ErrorKind::kInvalid, "`" + std::string(field) + "` must be a number from 0 to 2^63-1, not `" +
                                       to_valid_utf8(text.substr(0, 20)) + "`");
}

Result<std::string> check_user_name(std::string_view name) {
  if (name.size() <= kMaxNameBytes && name.find('\0') == std::string_view::npos) return std::string(name);
  return fail(ErrorKind::kInvalid, "`user` has " + std::to_string(name.size()) + " bytes or holds a NUL byte, the limit is 63");
}

Status check_template_name(std::string_view name) {
  const auto ok = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'; };
  const bool first_ok = !name.empty() && ((name[0] >= 'a' && name[0] <= 'z') || (name[0] >= '0' && name[0] <= '9'));
  if (first_ok && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), ok)) return {};
  return fail(ErrorKind::kInvalid, "template name `" + to_valid_utf8(name.substr(0, 80)) +
                                       "` must be 1 to 63 of a-z, 0-9, `.`, `_`, `-`, starting with a letter or digit");
}

Status check_idempotency_key(std::string_view key) {
  if (!key.empty() && key.size() <= 128 && std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7f; }))
    return {};
  return fail(ErrorKind::kInvalid,
              "Idempotency-Key has " + std::to_string(key.size()) + " bytes, allowed are 1 to 128 printable characters");
}

}  // namespace ramet::api
