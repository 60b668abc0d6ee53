# Flattens JSON: one line a value, "path<TAB>value", the path's steps joined by dots, list items numbered from 0.
# Strings keep their quotes and escapes.
function put(value,    at, path)
{
    for (at = 1; at <= depth; at++) path = path (at > 1 ? "." : "") step[at]
    print path "\t" value
}
function take(token)
{
    if (token == "{" || token == "[") {
        is_list[++depth] = token == "["
        step[depth] = is_list[depth] ? 0 : ""
        want_key = !is_list[depth]
    } else if (token == "}" || token == "]") {
        depth--
        want_key = 0
    } else if (token == ",") {
        if (is_list[depth]) step[depth]++
        else want_key = 1
    } else if (token == ":") {
        want_key = 0
    } else if (want_key) {
        step[depth] = substr(token, 2, length(token) - 2)
    } else {
        put(token)
    }
}
{
    rest = $0
    while (match(rest, /"([^"\\]|\\.)*"|[][{}:,]|[^][{}:," \t\r]+/)) {
        token = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        take(token)
    }
}
