// plugin.cc - nbdkit's C interface on one side, ServedDisk on the other; nothing is decided here but flags. Everything runs on
// nbdkit's threads, requests of all connections at once. The disk is a global because the interface has no place for it.
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <exception>
#include <optional>

#include "error_numbers.h"
#include "served_disk.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace ramet::nbd {
namespace {

constexpr uint32_t kMaxRequestBytes = 64 << 20;      // nbdkit's own limit
constexpr uint64_t kExtentWindowBytes = 1ull << 30;  // looked at under one lock
constexpr int kMaxExtentsPerAnswer = 4096;

Parameters parameters;
std::optional<ServedDisk> disk;

int answer(const Status& status) {
  if (status) return 0;
  nbdkit_error("%s", status.error().to_string().c_str());
  nbdkit_set_error(error_number(status.error().kind()));
  return -1;
}

// No exception may reach C. The only one that our code leaves is that memory is used up.
template <class F>
int guarded(F work) {
  try {
    return answer(work());
  } catch (const std::exception& e) {
    nbdkit_error("%s", e.what());
    nbdkit_set_error(ENOMEM);
    return -1;
  }
}

int config(const char* name, const char* value) {
  return guarded([&] { return parameters.set(name, value); });
}
int config_complete() {
  return guarded([] { return parameters.check(); });
}

// Not earlier: the connection to the daemon has threads, and nbdkit may have forked until now.
int after_fork() {
  return guarded([]() -> Status {
    TRY_ASSIGN(disk, ServedDisk::open(parameters));
    return {};
  });
}

// No client is left. What was written without a flush is kept too, when we end in peace.
void cleanup() {
  if (disk && disk->writable()) guarded([] { return disk->bytes->flush(); });
  disk.reset();
}

void* open(int /*readonly*/) { return NBDKIT_HANDLE_NOT_NEEDED; }
int64_t get_size(void*) { return static_cast<int64_t>(disk->bytes->size_bytes()); }
int can_write(void*) { return disk->writable() ? 1 : 0; }
int can_multi_conn(void*) { return 1; }            // one disk under all connections: a flush on one covers the writes of all
int can_fua(void*) { return NBDKIT_FUA_EMULATE; }  // by a flush, which is what FUA costs here
int can_cache(void*) { return NBDKIT_CACHE_EMULATE; }  // by a read: it brings the chunk into the host's cache
int can_fast_zero(void*) { return 1; }

int block_size(void*, uint32_t* minimum, uint32_t* preferred, uint32_t* maximum) {
  *minimum = 1;
  *preferred = image::kBlockBytes;
  *maximum = kMaxRequestBytes;
  return 0;
}

int pread(void*, void* buffer, uint32_t count, uint64_t offset, uint32_t) {
  return guarded([&] { return disk->bytes->read(offset, {static_cast<std::byte*>(buffer), count}); });
}
int pwrite(void*, const void* buffer, uint32_t count, uint64_t offset, uint32_t) {
  return guarded([&] { return disk->bytes->write(offset, {static_cast<const std::byte*>(buffer), count}); });
}
int flush(void*, uint32_t) {
  return guarded([] { return disk->bytes->flush(); });
}
int trim(void*, uint32_t count, uint64_t offset, uint32_t) {
  return guarded([&] { return disk->bytes->discard(offset, count); });
}

// A client that forbids holes wants the space reserved: nbdkit then writes the zeros, or says that this is not fast.
int zero(void*, uint32_t count, uint64_t offset, uint32_t flags) {
  if ((flags & NBDKIT_FLAG_MAY_TRIM) == 0) {
    nbdkit_set_error(EOPNOTSUPP);
    return -1;
  }
  return guarded([&] { return disk->bytes->zero(offset, count); });
}

int extents(void*, uint32_t count, uint64_t offset, uint32_t flags, nbdkit_extents* list) {
  return guarded([&]() -> Status {
    uint64_t left = count;
    for (int n = 0; left > 0 && n < kMaxExtentsPerAnswer; n++) {
      const ByteDisk::Stretch stretch = disk->bytes->content_at(offset, std::min(left, kExtentWindowBytes));
      const uint32_t type = stretch.zero ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO : 0;
      if (nbdkit_add_extent(list, offset, stretch.bytes, type) < 0)
        return fail(ErrorKind::kNoMemory, "extents of " + std::to_string(count) + " bytes do not fit into memory");
      if ((flags & NBDKIT_FLAG_REQ_ONE) != 0) break;
      offset += stretch.bytes;
      left -= stretch.bytes;
    }
    return {};
  });
}

nbdkit_plugin make_plugin() {
  nbdkit_plugin p{};
  p.name = "ramet";
  p.longname = "Ramet disk";
  p.version = RAMET_VERSION;
  p.description = "An image of a Ramet daemon, read-only or with a private copy-on-write overlay";
  p.config_help = kParametersHelp;
  p.magic_config_key = "image";
  p.config = config;
  p.config_complete = config_complete;
  p.after_fork = after_fork;
  p.cleanup = cleanup;
  p.open = open;
  p.get_size = get_size;
  p.can_write = can_write;
  p.can_flush = can_write;
  p.can_trim = can_write;
  p.can_zero = can_write;
  p.can_fast_zero = can_fast_zero;
  p.can_fua = can_fua;
  p.can_multi_conn = can_multi_conn;
  p.can_cache = can_cache;
  p.block_size = block_size;
  p.pread = pread;
  p.pwrite = pwrite;
  p.flush = flush;
  p.trim = trim;
  p.zero = zero;
  p.extents = extents;
  return p;
}

nbdkit_plugin plugin = make_plugin();

}  // namespace
}  // namespace ramet::nbd

NBDKIT_REGISTER_PLUGIN(ramet::nbd::plugin)
