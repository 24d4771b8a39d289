// api/handlers.h - one function per operation of api/openapi.yaml, and the few steps they share. Not here: the table
// (routes.cc). Thread: called concurrently, one Call each.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/fwd.hpp>

#include "api/routes.h"

namespace ramet::api {

// handle_sandboxes.cc
Status list_sandboxes(Call& call);
Status create_sandbox(Call& call);
Status get_sandbox(Call& call);
Status patch_sandbox(Call& call);
Status delete_sandbox(Call& call);
Status fork_sandbox(Call& call);
Status get_tree(Call& call);
Status get_logs(Call& call);
// handle_snapshots.cc
Status pause_sandbox(Call& call);
Status resume_sandbox(Call& call);
Status rollback_sandbox(Call& call);
Status create_snapshot(Call& call);
Status list_snapshots(Call& call);
Status get_snapshot(Call& call);
Status patch_snapshot(Call& call);
Status delete_snapshot(Call& call);
// handle_processes.cc
Status exec(Call& call);
Status list_processes(Call& call);
Status attach_process(Call& call);
Status write_stdin(Call& call);
Status signal_process(Call& call);
Status resize_terminal(Call& call);
// handle_files.cc
Status read_file(Call& call);
Status write_file(Call& call);
Status remove_file(Call& call);
Status list_files(Call& call);
Status stat_file(Call& call);
Status make_directory(Call& call);
Status move_file(Call& call);
// handle_templates.cc
Status list_templates(Call& call);
Status commit_template(Call& call);
Status save_template(Call& call);
Status delete_template(Call& call);
Status upload_template_file(Call& call);
// handle_images.cc
Status list_images(Call& call);
Status get_image(Call& call);
Status import_image(Call& call);
Status export_image(Call& call);
Status diff_images(Call& call);
Status delete_image(Call& call);
Status commit_disk(Call& call);
// handle_host.cc
Status get_health(Call& call);
Status get_host(Call& call);

// The whole JSON body as text.   Errors: kInvalid (too large, wrong Content-Type), those of Exchange::read_body.
Result<std::string> read_json_body(Exchange& exchange);
Response json_response(int status, const boost::json::object& body);
Response error_response(const Error& error, std::string_view request_id);
Status answer_nothing(Exchange& exchange);  // 204

}  // namespace ramet::api
