// The store of images as part of this host: opening it, giving machines their bases, and looking after it.
#include <set>

#include "base/log.h"
#include "host/crash_point.h"
#include "host/host_impl.h"

namespace ramet::host {
namespace {
constexpr Milliseconds kAttachDeadline{5000};

Result<std::optional<RemoteTierOptions>> remote_tier(const RemoteOptions& o) {
  if (o.endpoint.empty()) return std::optional<RemoteTierOptions>();
  if (o.bucket.empty())
    return fail(ErrorKind::kInvalid, "a remote tier at " + o.endpoint + " needs a bucket (--remote-bucket)");
  if (o.access_key.empty() || o.secret_key.empty())
    return fail(ErrorKind::kInvalid, "a remote tier at " + o.endpoint + " needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  return std::optional(RemoteTierOptions{.place = {.endpoint = o.endpoint,
                                                   .region = o.region,
                                                   .bucket = o.bucket,
                                                   .credentials = {o.access_key, o.secret_key, o.session_token}},
                                         .prefix = o.prefix,
                                         .local_bytes = o.local_mib << 20});
}

}  // namespace

Status HostImpl::open_images() {
  Images::Options options;
  options.store.directory = paths_.store();
  options.store.cache_bytes = options_.chunk_cache_mib << 20;
  options.store.admit = [this](uint64_t bytes) { return admission_.check_disk(bytes); };
  options.store.reached = [](std::string_view step) { crash_point(step); };
  TRY_ASSIGN(options.store.remote, remote_tier(options_.remote));
  options.fill.after_misses = options_.fill_after_misses;
  options.socket = paths_.chunk_socket();
  TRY_ASSIGN(images_, Images::open(std::move(options)));
  return {};
}

Status HostImpl::attach_base(const MachineRow& row, Machine& machine) {
  if (row.base_image.empty()) return {};
  TRY_ASSIGN(const UniqueFd socket, context_->chunk_socket(row.base_image));
  FdsToSend fds;
  vmm::Request request;
  request.mutable_attach_base()->set_disk_id("vda");
  request.mutable_attach_base()->set_chunk_fd(fds.add(socket.get()));
  TRY(machine.call(std::move(request), fds, deadline_after(kAttachDeadline)));
  crash_point("adopt.attached");
  return {};
}

void HostImpl::tend_images() {
  slow_->post_at(deadline_after(options_.store_interval), [this] { tend_images(); });
  template_store_->drop_old_uploads();
  images_->scrub();
  std::set<std::string> wanted;
  const Result<std::vector<MachineRow>> rows = registry_->machines();
  if (!rows) return;  // without the list every disk would look unneeded
  for (const MachineRow& r : *rows)
    if (r.info.state != SandboxState::kGone && r.info.state != SandboxState::kFailed) wanted.insert(r.base_image);
  snapshots_->sweep();
  ImageStore& store = images_->store();
  if (const Status kept = template_store_->keep_needed_disks(wanted); !kept) log_warn("store: " + kept.error().to_string());
  if (!store.wants_collection()) return;
  Result<chunk::Store::Collected> collected = store.collect();
  if (!collected && collected.error().kind() == ErrorKind::kNoSpace) {
    drop_ballast();
    collected = store.collect();
    restore_ballast();
  }
  if (!collected)
    log_warn("store: " + collected.error().to_string());
  else if (collected->chunks_removed != 0)
    log_info("store: " + std::to_string(collected->chunks_removed) + " chunks forgotten, " +
             std::to_string(collected->bytes_before >> 20) + " MiB before, " + std::to_string(collected->bytes_after >> 20) +
             " MiB after");
}

}  // namespace ramet::host
