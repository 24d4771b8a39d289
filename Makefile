# Thin: each target is one line into CMake presets or tools/.
.PHONY: build demo test bench soak fmt clean

build: ; @tools/build release
demo:  ; @tools/bootstrap && tools/demo
test:  ; @tools/test
bench: ; @tools/bench
soak:  ; @tools/soak
fmt:   ; @git ls-files '*.cc' '*.h' | xargs -r clang-format -i
clean: ; @tools/clean
