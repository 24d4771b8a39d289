#include "host/context.h"

#include "base/log.h"

namespace ramet::host {

ImageId base_image_id(const std::string& name) {
  return {name.starts_with("sn-") ? ImageSpace::kSnapshot : ImageSpace::kTemplate, name};
}

void dismantle(const Context& context, const std::string& id, const std::string& family,
               const std::shared_ptr<Machine>& machine) {
  if (machine) {
    machine->kill();
    if (!machine->wait_end(deadline_after(Milliseconds(10'000)))) log_warn(id + ": its process does not end");
  }
  context.evacuate_leaf(family, id);
  context.resources.release(id, family, false);
  const Status gone = context.registry.delete_machine(id);
  if (!gone) log_error(gone.error().to_string());
  context.overlays_changed();
}

void add_overlay(vmm::OverlayFds& out, FdsToSend& fds, const OverlayFiles& o) {
  out.set_id(o.id);
  out.set_data_rw_fd(fds.add(o.data_rw.get()));
  out.set_data_ro_fd(fds.add(o.data_ro.get()));
  out.set_log_rw_fd(fds.add(o.log_rw.get()));
  out.set_log_ro_fd(fds.add(o.log_ro.get()));
}

}  // namespace ramet::host
