// cli/template_upload.h - a large file on its way to the server, of a template or an image: compressed while it goes, holes not
// read. Not here: template.json and the commit (cmd_template.cc). Thread: one.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cli/api_client.h"

namespace ramet::cli {

// The answer to the upload. Calls `progress` with the number of bytes of the file that are done.
Result<boost::json::value> upload_file(const ApiClient& api, std::string_view method, const std::string& target,
                                       const std::string& path, const std::function<void(uint64_t)>& progress);
Status upload_template_file(const ApiClient& api, const std::string& name, const std::string& file, const std::string& path,
                            const std::function<void(uint64_t)>& progress);

}  // namespace ramet::cli
