# Build helpers: ramet_library, ramet_program, ramet_test, ramet_fuzz, ramet_proto.
find_package(Threads REQUIRED)
set(Protobuf_USE_STATIC_LIBS ON)  # ramet-vmm is a static program
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

option(RAMET_FUZZ "Build the fuzz targets with libFuzzer (clang)" OFF)
set(RAMET_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined or thread")

add_library(ramet_options INTERFACE)
target_include_directories(ramet_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_BINARY_DIR}/generated)
target_compile_options(ramet_options INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers -Wnon-virtual-dtor -Werror=return-type -Werror=unused-result)
target_link_libraries(ramet_options INTERFACE Threads::Threads)
if(RAMET_SANITIZE)
  target_compile_options(ramet_options INTERFACE -fsanitize=${RAMET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(ramet_options INTERFACE -fsanitize=${RAMET_SANITIZE})
endif()

# ramet_library(NAME SRCS a.cc ... LIBS other ...): static library ramet_NAME, headers included from src/.
function(ramet_library name)
  cmake_parse_arguments(A "" "" "SRCS;LIBS" ${ARGN})
  if(A_SRCS)
    add_library(ramet_${name} STATIC ${A_SRCS})
    target_link_libraries(ramet_${name} PUBLIC ramet_options ${A_LIBS})
  else()
    add_library(ramet_${name} INTERFACE)
    target_link_libraries(ramet_${name} INTERFACE ramet_options ${A_LIBS})
  endif()
endfunction()

# ramet_program(NAME SRCS ... LIBS ...): executable NAME in <build>/bin.
function(ramet_program name)
  cmake_parse_arguments(A "" "" "SRCS;LIBS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE ramet_options ${A_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# ramet_test(NAME SRCS ... LIBS ... [LABELS vm|fork|soak]): GoogleTest program registered with CTest. A test that needs what the machine
# lacks calls GTEST_SKIP() with the reason; CTest counts it as skipped.
function(ramet_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SRCS;LIBS;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  if(RAMET_SANITIZE)
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * 4")
  endif()
  add_executable(${name} ${A_SRCS} ${CMAKE_SOURCE_DIR}/cmake/test_main.cc)
  target_compile_definitions(${name} PRIVATE RAMET_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ramet_options ${A_LIBS} GTest::gtest GTest::gmock)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "${A_LABELS}"
    SKIP_RETURN_CODE 77)
endfunction()

# ramet_fuzz(NAME SRCS ... LIBS ...): libFuzzer target in <build>/fuzz (fuzz preset); in every other build the same source is a
# CTest that runs the corpus in fuzz/corpus/NAME once (RAMET_FUZZ_REPLAY supplies main).
function(ramet_fuzz name)
  cmake_parse_arguments(A "" "" "SRCS;LIBS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE ramet_options ${A_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  if(RAMET_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/fuzz/replay_main.cc)
    add_test(NAME ${name}_corpus COMMAND ${name} ${CMAKE_SOURCE_DIR}/fuzz/corpus/${name})
    set_tests_properties(${name}_corpus PROPERTIES TIMEOUT 120 LABELS fuzz)
  endif()
endfunction()

# ramet_proto(TARGET src/relative/path.proto): static library with the generated messages; include "relative/path.pb.h".
function(ramet_proto target proto)
  find_package(Protobuf REQUIRED)
  set(out ${CMAKE_BINARY_DIR}/generated)
  string(REGEX REPLACE "\\.proto$" "" stem ${proto})
  file(MAKE_DIRECTORY ${out})
  add_custom_command(
    OUTPUT ${out}/${stem}.pb.cc ${out}/${stem}.pb.h
    COMMAND protobuf::protoc --cpp_out=${out} -I ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/${proto}
    DEPENDS ${CMAKE_SOURCE_DIR}/src/${proto} VERBATIM)
  add_library(${target} STATIC ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
  target_include_directories(${target} PUBLIC ${out})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf-lite Threads::Threads)
  if(RAMET_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${RAMET_SANITIZE})
  endif()
endfunction()
