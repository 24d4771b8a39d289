// cli/template_upload.h - something large on its way to the server, of a template or an image: compressed while it goes, holes
// of a file not read, a directory as a tar. Not here: template.json and the commit (cmd_template.cc). Thread: one.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cli/api_client.h"

namespace ramet::cli {

struct Upload {
  std::string_view method;
  std::string target;
  std::string path;                              // of a file or a directory
  std::function<void(uint64_t bytes)> progress;  // more bytes are done
  // Requires: the whole body was sent, or the server wants no more of it.
  std::function<Result<boost::json::value>(HttpStream&)> read_answer = ApiClient::finish_upload;
};
// The answer to the upload.
Result<boost::json::value> upload(const ApiClient& api, const Upload& what);
Status upload_template_file(const ApiClient& api, const std::string& name, const std::string& file, const std::string& path,
                            const std::function<void(uint64_t)>& progress);

}  // namespace ramet::cli
