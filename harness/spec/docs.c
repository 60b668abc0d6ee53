/* docs/experiments.md, from the tables that the parser itself uses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/spec/spec_parts.h"

static const char intro[] =
    "# Experiment files\n"
    "\n"
    "<!-- Generated: `dlab list --docs > docs/experiments.md`. Edit the tables in the code, not this page. -->\n"
    "\n"
    "An experiment is one YAML file: what to run, how to measure it, what to show. `dlab run FILE` turns it into "
    "*points*\n"
    "(one value for each axis), runs each point several times in a worker process, and leaves one HDF5 record, a table "
    "and\n"
    "plots. `dlab run FILE --dry-run` prints the points and the memory that each needs, and runs nothing.\n"
    "\n"
    "## A worked example\n"
    "\n"
    "```yaml\n"
    "name: cache-or-not             # names the record: cache-or-not.h5\n"
    "about: What a KV cache buys, in two element formats and at three batch sizes.\n"
    "covers: [K1, K2]               # which requirements it answers\n"
    "\n"
    "plan:                          # the engine's half\n"
    "  kv:                          # kv: {store: …} and kv.store: … are the same key\n"
    "    store: [none, contiguous]  # a list is swept\n"
    "    k: [f32, f16]\n"
    "    v: [f32, f16]\n"
    "  batch.size: [1, 2, 4]\n"
    "  compute: f32                 # one value is the same for all points\n"
    "zip: [[kv.k, kv.v]]            # these two move together: f32/f32 and f16/f16, never mixed\n"
    "exclude:\n"
    "  - {kv.store: none, batch.size: 4}         # drops points: 2 × 2 × 3 = 12, less 2\n"
    "include:\n"
    "  - {kv.store: contiguous, batch.size: 16}  # adds one, with kv.k and kv.v at their defaults\n"
    "\n"
    "workload:                      # the harness's half: what the engine is asked to do\n"
    "  prompt: 64\n"
    "  output: 16\n"
    "\n"
    "measure:                       # how; never swept\n"
    "  repeats: 3\n"
    "  time_limit: 30s\n"
    "\n"
    "report:\n"
    "  metrics: [ttft, tpot, mem_peak]\n"
    "  baseline: {kv.store: none}   # each point beside the one that differs in this alone\n"
    "  ratio: tpot\n"
    "\n"
    "plots:\n"
    "  - name: tpot\n"
    "    template: bars\n"
    "    title: Time of one more token\n"
    "    y: tpot\n"
    "    series: [kv.store]\n"
    "```\n"
    "\n"
    "## From lists to points\n"
    "\n"
    "- A value of `plan`, `workload` or `model` that is a list is *swept*. All lists together make a product, in the "
    "file's\n"
    "  order, the **last list varying fastest**. `measure` is never swept.\n"
    "- `zip: [[kv.k, kv.v]]` names keys whose lists move together inside the product; they have the same length. With\n"
    "  `matrix: zip` all lists do (a ladder still multiplies).\n"
    "- `exclude` drops the points that match all pairs of an entry. An entry that matches nothing is an error.\n"
    "- `include` adds one point an entry, after the exclusions. A key that the entry does not name has the file's "
    "single\n"
    "  value, or its default where the file sweeps it.\n"
    "- `ladder` applies one change after another. Each step has a `name` and a `set`, on top of all steps before it; "
    "together\n"
    "  the steps are one axis named `ladder`:\n"
    "\n"
    "  ```yaml\n"
    "  ladder:\n"
    "    - name: baseline\n"
    "    - {name: f16 cache, set: {kv.k: f16, kv.v: f16}}\n"
    "    - {name: fused, set: {attention.kernel: fused}}\n"
    "  ```\n"
    "\n"
    "- A combination that cannot work is a point with status `skipped` and the reason, never a silent hole.\n"
    "- At most 10 000 points. A key given twice (dotted and nested, or swept and in the ladder), a value twice in a "
    "list, an\n"
    "  unknown key or word: one line with file, line, column, and the nearest valid word; nothing runs.\n"
    "\n"
    "`--set KEY=VALUE` and `--set KEY=[A, B]` (repeatable; the last one of a key wins) replace the file's value, swept "
    "or not,\n"
    "in ladders and includes too: `--set kv.store=none`, `--set workload.prompt=[64, 128]`, `--set "
    "measure.repeats=1`,\n"
    "`--set model=FILE`.\n"
    "\n"
    "Sizes are bytes or take a unit (`64KiB`, `1.5GiB`, `2GB`); durations are seconds or take a unit (`250ms`, `20s`,\n"
    "`2min`); switches are `true` or `false` (also `on`/`off`, `yes`/`no`).\n";

static const char workload_text[] =
    "\n"
    "## How requests come about\n"
    "\n"
    "`workload.kind` says when requests arrive, `lengths` and `outputs` how long they are, `prompts` what they say. A "
    "key that\n"
    "does not belong to what was chosen is without effect, as `rate` is in a closed loop.\n"
    "\n"
    "- **batch**: all at once, when the clock starts.\n"
    "- **closed**: `concurrency` are in flight. The next is sent when one ends, after `think`. With `duration` and no "
    "`requests`,\n"
    "  4096 conversations are prepared, or 64 for each of `concurrency` where that is more; a run that uses them up "
    "ends early,\n"
    "  with a warning.\n"
    "- **open**: `rate` a second, whatever the target does; a request's time is when it should have come, even where "
    "it was sent\n"
    "  late. A constant rate starts at 0; a drawn one starts with its first gap. Gaps are drawn for a rate of 1 and "
    "mapped through\n"
    "  the rate's integral, ramp or not, and are never stretched to fill the duration. With `requests` and `duration`, "
    "whichever\n"
    "  ends first. A prompts file that has fewer than come in the duration ends the run early, with a warning. With "
    "`turns`,\n"
    "  conversations arrive at the rate and their later turns follow the answers.\n"
    "- **trace**: Mooncake's JSONL. The first line's time is the run's start; times must not fall. A hash stands for "
    "512 tokens,\n"
    "  drawn from `seed` and the hash alone, so that prompts that begin with equal hashes begin with equal tokens; the "
    "last block\n"
    "  may be a part of one. Without `hash_ids` no two prompts are alike.\n"
    "\n"
    "Drawn lengths outside their bounds, and those that the model's context cannot hold together (for conversations: "
    "all turns\n"
    "and answers), are drawn again. Of normal, lognormal and poisson the mean and the deviation are those before the "
    "bounds cut.\n"
    "\n"
    "`prompts: text` takes pieces of exactly the wanted number of tokens from the text, each from a place of its own, "
    "going on at\n"
    "the text's start when it ends; no BOS is put before them. With `jsonl` and `sharegpt` a prompt is as long as its "
    "text (with\n"
    "BOS where the model wants it) while `lengths` is `fixed`, and those above `prompt_max` are left out; with any "
    "other word of\n"
    "`lengths` the text is cut, or begins again, to the length that was drawn. An answer is as long as "
    "`output_length`, or as the\n"
    "conversation's answer, while `outputs` is `fixed`, and those above `output_max` are left out; where the file does "
    "not tell,\n"
    "it has `workload.output` tokens. In ShareGPT's form each message of `human` or `user` is a turn, up to "
    "`workload.turns` of\n"
    "them; `system` messages are passed over, and a conversation ends before a turn that is empty or too long.\n"
    "\n"
    "A later turn's prompt is all turns before it with their real answers, and `turn_prompt` tokens more. A turn "
    "whose\n"
    "predecessor failed is dropped with all turns behind it.\n"
    "\n"
    "There are four seeds: `seed` for what the prompts say, `seed_lengths`, `seed_arrivals` (also of think times, "
    "prefix groups and\n"
    "priorities), and the plan's `sample.seed` for the answers. A change in one changes nothing that the others draw, "
    "and what a\n"
    "request draws depends on its seed and its number alone. Warm-up has the same lengths with other "
    "tokens;\n"
    "unless it is a batch it sends `concurrency` conversations (closed), or as many as fill `batch.size`, at once.\n"
    "\n"
    "Files are found as the process sees them, and their contents are part of what identifies a run: a run is done "
    "again when a\n"
    "file has changed.\n";

static void print_cell(FILE *f, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '|') fputc('\\', f);
        fputc(*c, f);
    }
}

static void print_code(FILE *f, const char *text)
{
    if (text[0]) fprintf(f, "`%s`", text);
}

/* "a, b, c", "0 to 4096", or nothing */
static void print_range(FILE *f, const dlab_param *p)
{
    const char *const *words = p->choices ? p->choices() : NULL;
    for (size_t i = 0; words && words[i]; i++) fprintf(f, "%s`%s`", i ? ", " : "", words[i]);
    if (words || p->min > p->max) return;
    if (p->type == DLAB_PARAM_DURATION || p->type == DLAB_PARAM_SIZE) {
        fprintf(f, "%s", p->min > 0 ? "above 0" : "at least 0");
    } else {
        fprintf(f, "%.16g to %.16g", p->min, p->max);
    }
}

static void print_params(FILE *f, const char *heading, const char *text, const dlab_param *table, size_t n)
{
    fprintf(f, "\n## `%s:`\n\n%s\n\n| key | type | default | values | meaning |\n|---|---|---|---|---|\n", heading,
            text);
    const size_t strip = strcmp(heading, "plan") == 0 ? 0 : strlen(heading) + 1;
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "| `%s` | %s | ", table[i].key + strip, dlab_param_type_name(table[i].type));
        print_code(f, table[i].def);
        fprintf(f, " | ");
        print_range(f, &table[i]);
        fprintf(f, " | ");
        print_cell(f, table[i].help);
        fprintf(f, " |\n");
    }
}

static void print_words(FILE *f, const char *heading, const char *text, const char *section)
{
    size_t n;
    const dlab_spec_word *w = dlab_spec_words(&n);
    fprintf(f, "\n## %s\n\n%s%s| key | type | default | meaning |\n|---|---|---|---|\n", heading, text,
            text[0] ? "\n\n" : "");
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(section);
        const bool inside = len > 0 && strncmp(w[i].section, section, len) == 0 && w[i].section[len] == '.';
        if (strcmp(w[i].section, section) != 0 && !inside) continue;
        fprintf(f, "| `%s%s%s` | %s | ", inside ? w[i].section + len + 1 : "", inside ? "." : "", w[i].key, w[i].type);
        print_cell(f, w[i].def);
        fprintf(f, " | ");
        print_cell(f, w[i].help);
        fprintf(f, " |\n");
    }
}

static bool is_choice(const dlab_param *p, const char *word)
{
    const char *const *words = p && p->choices ? p->choices() : NULL;
    for (size_t i = 0; words && words[i]; i++) {
        if (strcmp(words[i], word) == 0) return true;
    }
    return false;
}

static void print_reserved(FILE *f)
{
    fprintf(
        f, "\n## Words that this version has not built\n\nThey are planned, and an experiment that uses one is told so "
           "instead of being offered another word.\n\n| key | words |\n|---|---|\n");
    size_t n;
    const dlab_spec_reserved *r = dlab_spec_reserved_words(&n);
    for (size_t i = 0; i < n; i++) {
        dlab_spec_table table;
        const dlab_param *p = dlab_spec_find(r[i].key, &table);
        size_t shown = 0;
        char list[256] = "";
        for (size_t k = 0; k < sizeof r[i].words / sizeof r[i].words[0] && r[i].words[k]; k++) {
            if (is_choice(p, r[i].words[k])) continue;
            const size_t at = strlen(list);
            snprintf(list + at, sizeof list - at, "%s`%s`", shown++ ? ", " : "", r[i].words[k]);
        }
        if (shown) {
            fprintf(f, "| `%s` | %s |\n", r[i].key, list);
        } else if (!p) {
            fprintf(f, "| `%s` | the key itself |\n", r[i].key);
        }
    }
}

dlab_status dlab_spec_docs(char **out, dlab_error *err)
{
    size_t bytes = 0, n;
    *out = NULL;
    FILE *f = open_memstream(out, &bytes);
    if (!f) return DLAB_FAIL(err, DLAB_EOOM, "docs: no memory");
    fputs(intro, f);
    print_words(f, "Sections", "", "");
    const dlab_param *table = dlab_plan_params(&n);
    print_params(f, "plan", "The engine's axes. `dlab list` says what each word does.", table, n);
    table = dlab_workload_params(&n);
    print_params(f, "workload", "Elsewhere these keys are written in full: `workload.prompt`.", table, n);
    fputs(workload_text, f);
    table = dlab_measure_params(&n);
    print_params(f, "measure", "For `--set` these keys are written in full: `measure.repeats`.", table, n);
    print_words(f, "`ladder:`", "A list of steps.", "ladder");
    print_words(f, "`report:`", "What the table under a run shows. Metrics are defined in docs/metrics.md.", "report");
    print_words(f, "`plots:`", "A list; each entry becomes `NAME.svg`, `NAME.png`, its data and its gnuplot script.",
                "plots");
    print_reserved(f);
    const bool failed = ferror(f) != 0;
    if (fclose(f) == 0 && !failed) return DLAB_OK;
    free(*out);
    *out = NULL;
    return DLAB_FAIL(err, DLAB_EOOM, "docs: no memory");
}
