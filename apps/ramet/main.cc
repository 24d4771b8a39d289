// ramet - the command line client; everything is in src/cli.
#include <clocale>

#include "cli/app.h"

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  return ramet::cli::run_app(std::vector<std::string>(argv + 1, argv + argc));
}
