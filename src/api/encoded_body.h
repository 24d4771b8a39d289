// api/encoded_body.h - a large body, plain or zstd, piece by piece to whoever keeps it. Thread: that of the exchange.
#pragma once

#include <functional>
#include <span>

#include "api/exchange.h"

namespace ramet::api {

// Errors: kInvalid (another Content-Encoding, broken or cut zstd), those of Exchange::read_body, those of `keep`.
Status read_encoded_body(Exchange& exchange, const std::function<Status(std::span<const std::byte>)>& keep);

}  // namespace ramet::api
