#include "requests.h"

namespace ramet::bench {
namespace {

constexpr const char* kName = "asked";
const host::ImageId kImage{host::ImageSpace::kUser, kName};

// Wrong bytes, and every other trouble, end the benchmark.
Answer answer(const Status& read) {
  if (read) return Answer::kBytes;
  if (read.error().message().find("no chunk ") == std::string::npos) die(read.error().to_string());
  return Answer::kNotFound;
}

class ByDigest final : public Request {
 public:
  const char* name() const override { return "chunk by its digest"; }
  Answer ask(Tenant& tenant, const Content& content) override {
    const Result<Bytes> bytes = tenant.store().chunks().get(content.digest);
    return answer(bytes ? Status() : Status(tl::unexpected<Error>(bytes.error())));
  }
};

// The disk begins with zeros, so that all that an ask needs beside the block is there before.
class ByBlock final : public Request {
 public:
  const char* name() const override { return "block of a disk, chunk socket"; }
  void prepare(Tenant& tenant, const Content& content) override {
    reader_ = std::make_unique<Reader>(tenant.images(), tenant.add_disk(kName, 1, content.digest));
    must(reader_->read(0));
  }
  Answer ask(Tenant&, const Content&) override { return answer(reader_->read(image::kChunkBlocks)); }
  void clean_up(Tenant& tenant) override {
    reader_.reset();
    must(tenant.store().remove(kImage));
  }

 private:
  std::unique_ptr<Reader> reader_;
};

class ByManifest final : public Request {
 public:
  const char* name() const override { return "manifest that names it, measured, downloaded"; }
  // To add it takes syncs, and no look at what it names.
  void prepare(Tenant& tenant, const Content& content) override { tenant.add_disk(kName, 0, content.digest); }
  Answer ask(Tenant& tenant, const Content&) override {
    const Result<host::ImageInfo> info = tenant.images().get(kName);
    const Result<std::span<const std::byte>> bytes = must(tenant.images().download(kName))->next();
    if (info.has_value() != bytes.has_value()) die("an image can be measured or read, not both");
    return answer(bytes ? Status() : Status(tl::unexpected<Error>(bytes.error())));
  }
  void clean_up(Tenant& tenant) override { must(tenant.store().remove(kImage)); }
};

// Put, and given up again: what the syncs of a commit would hide.
class Put final : public Request {
 public:
  const char* name() const override { return "put of the same bytes, not committed"; }
  Answer ask(Tenant& tenant, const Content& content) override {
    batch_ = std::make_unique<chunk::Batch>(tenant.store().chunks().begin());
    must(batch_->put(content.bytes));
    return Answer::kStored;
  }
  void clean_up(Tenant&) override { batch_.reset(); }

 private:
  std::unique_ptr<chunk::Batch> batch_;
};

class Upload final : public Request {
 public:
  const char* name() const override { return "upload of the same bytes as an image"; }
  Answer ask(Tenant& tenant, const Content& content) override {
    const std::unique_ptr<host::ImageUpload> upload = must(tenant.images().upload(kName));
    must(upload->write(content.bytes));
    must(upload->finish({.format = "raw"}));
    return Answer::kStored;
  }
  void clean_up(Tenant& tenant) override { must(tenant.store().remove(kImage)); }
};

}  // namespace

std::vector<std::unique_ptr<Request>> all_requests() {
  std::vector<std::unique_ptr<Request>> out;
  out.push_back(std::make_unique<ByDigest>());
  out.push_back(std::make_unique<ByBlock>());
  out.push_back(std::make_unique<ByManifest>());
  out.push_back(std::make_unique<Put>());
  out.push_back(std::make_unique<Upload>());
  return out;
}

}  // namespace ramet::bench
