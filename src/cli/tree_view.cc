#include "cli/tree_view.h"

#include "cli/json_text.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

struct Lines {
  const char *tee, *corner, *bar;
};
constexpr Lines kAscii{"|- ", "`- ", "|  "};
constexpr Lines kUtf8{"├─ ", "└─ ", "│  "};

double number_of(const json::object& o, std::string_view name) {
  const json::value* v = o.if_contains(json::string_view(name.data(), name.size()));
  return v != nullptr && v->is_number() ? v->to_number<double>() : 0;
}

std::string state_text(const json::object& node, bool colours) {
  const std::string state = text_of(node, "state");
  if (state == "running") return painted(state, Colour::kGreen, colours);
  if (state == "failed") return painted(state, Colour::kRed, colours);
  return painted(state, Colour::kDim, colours);
}

struct Painter {
  Table table;
  int64_t now;
  TreeStyle style;
  const Lines& lines;

  void add(const json::object& node, const std::string& before, const std::string& below) {
    const std::optional<int64_t> created = parse_time(text_of(node, "created_at"));
    const json::value* timing = node.if_contains("timing");
    const json::object empty;
    const json::object& t = timing != nullptr && timing->is_object() ? timing->get_object() : empty;
    const json::value* labels = node.if_contains("labels");
    const std::string name = labels != nullptr && labels->is_object() ? text_of(labels->get_object(), "name") : "";
    const bool lives = text_of(node, "state") == "running";
    const auto bytes = [&](std::string_view field) {
      return lives ? format_bytes(static_cast<uint64_t>(std::max(0.0, number_of(node, field)))) : std::string("-");
    };
    table.add({before + painted(text_of(node, "id"), Colour::kBold, style.colours) +
                   (name.empty() ? "" : " (" + printable(name) + ")"),
               state_text(node, style.colours), created ? format_span(now - *created) : "-", format_ms(number_of(t, "fork_ms")),
               format_ms(number_of(t, "total_ms")), bytes("ram_diverged_bytes"), bytes("ram_own_bytes"),
               bytes("disk_own_bytes")});
    const json::value* children = node.if_contains("children");
    if (children == nullptr || !children->is_array()) return;
    const json::array& list = children->get_array();
    for (size_t i = 0; i < list.size(); i++) {
      const bool last = i + 1 == list.size();
      add(list[i].as_object(), below + (last ? lines.corner : lines.tee), below + (last ? "   " : lines.bar));
    }
  }
};

}  // namespace

std::string render_tree(const json::object& tree, int64_t now, TreeStyle style) {
  Painter painter{Table({{"SANDBOX"},
                         {"STATE"},
                         {"AGE"},
                         {"FORK", Align::kRight},
                         {"READY", Align::kRight},
                         {"RAM DIVERGED", Align::kRight},
                         {"RAM OWN", Align::kRight},
                         {"DISK OWN", Align::kRight}}),
                  now, style, style.utf8 ? kUtf8 : kAscii};
  const json::value* roots = tree.if_contains("roots");
  if (roots != nullptr && roots->is_array())
    for (const json::value& root : roots->get_array()) painter.add(root.as_object(), "", "");
  return painter.table.render();
}

}  // namespace ramet::cli
