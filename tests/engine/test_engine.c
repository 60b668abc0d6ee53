/* Requests, batches, primed prefixes, memory: what the engine promises to whoever drives it. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine_test.h"

/* Counts every allocation of the process, to prove that a step makes none. Sanitizers bring their own malloc. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_MALLOC 0
static _Atomic long n_mallocs;
#else
#define COUNTS_MALLOC 1
static _Atomic long n_mallocs;
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n)
{
    n_mallocs++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
    n_mallocs++;
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
    n_mallocs++;
    return __libc_realloc(p, n);
}
#endif

/* From here on any other system call kills the process. False where filters are not to be had. */
static bool only_waiting_allowed(void)
{
    static const int allowed[] = {SYS_sched_yield, SYS_futex, SYS_clock_gettime, SYS_exit_group};
    enum { N_ALLOWED = sizeof allowed / sizeof *allowed };
    struct sock_filter f[N_ALLOWED + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int i = 0; i < N_ALLOWED; i++) {
        f[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i],
                                                (unsigned char)(N_ALLOWED - i), 0);
    }
    f[1 + N_ALLOWED] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    f[2 + N_ALLOWED] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {N_ALLOWED + 3, f};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

static void submit(dlab_engine *e, int64_t id, const int32_t *prompt, int64_t n, int64_t max_new, int32_t primed)
{
    dlab_engine_request r = {
        .id = id, .prompt = prompt, .n_prompt = n, .max_new = max_new, .eos = -1, .seed = 5, .primed = primed};
    OK(dlab_engine_submit(e, &r, err));
}

typedef struct {
    int32_t ids[8][64];
    int n[8];
    int steps, pad_rows, prefill_rows, decode_rows;
    int live_sum;
    int64_t growths, kv_used_last;
    double flops;
    dlab_finish finish[8];
} outcome;

static dlab_kv_stats kv_of(const dlab_engine *e)
{
    dlab_kv_stats kv;
    dlab_engine_kv(e, &kv);
    return kv;
}

static outcome run_all(dlab_engine *e)
{
    outcome o = {0};
    while (dlab_engine_busy(e)) {
        dlab_step st;
        OK(dlab_engine_step(e, &st, err));
        ck_assert_int_eq(st.rows, st.prefill_rows + st.decode_rows + st.pad_rows);
        o.steps++;
        o.pad_rows += st.pad_rows;
        o.prefill_rows += st.prefill_rows;
        o.decode_rows += st.decode_rows;
        o.flops += st.flops;
        o.live_sum += st.seqs;
        o.growths = kv_of(e).n_growths;
        o.kv_used_last = st.kv.used_bytes;
        for (int i = 0; i < st.n_tokens; i++) {
            const dlab_step_token *t = &st.tokens[i];
            ck_assert_int_eq(t->index, o.n[t->request]);
            o.ids[t->request][o.n[t->request]++] = t->token;
            o.finish[t->request] = t->finish;
        }
    }
    return o;
}

static const int32_t PROMPT[40] = {5, 9, 200, 31, 7, 7, 80, 81, 82, 3, 2, 1, 90, 91, 92, 17, 18, 19, 20, 21,
                                   5, 9, 100, 31, 6, 7, 80, 82, 82, 3, 1, 1, 90, 92, 92, 17, 18, 29, 20, 21};

START_TEST(a_static_batch_pads_to_the_longest_and_ends_with_it)
{
    dlab_model *m = open_model("synthetic:tiny");
    dlab_engine *e = open_engine(m, "batch.mode=static batch.size=3 batch.padding=compute", 3, 64, 0);
    submit(e, 0, PROMPT, 10, 2, -1);
    submit(e, 1, PROMPT, 4, 5, -1);
    submit(e, 2, PROMPT, 7, 1, -1);
    submit(e, 3, PROMPT, 6, 3, -1);
    outcome o = run_all(e);
    ck_assert_int_eq(o.n[0], 2);
    ck_assert_int_eq(o.n[1], 5);
    ck_assert_int_eq(o.n[2], 1);
    ck_assert_int_eq(o.n[3], 3);
    /* one prefill and four decode steps of the first group, then a prefill and two decode steps of the second */
    ck_assert_int_eq(o.steps, 5 + 3);
    ck_assert_int_eq(o.prefill_rows, 10 + 4 + 7 + 6);
    ck_assert_int_eq(o.decode_rows, 1 + 4 + 0 + 2);
    ck_assert_int_eq(o.pad_rows, (0 + 6 + 3) + (3 + 0 + 4));
    dlab_engine_destroy(e);
    e = open_engine(m, "batch.mode=static batch.size=3 batch.padding=skip", 3, 64, 0);
    for (int i = 0; i < 3; i++) submit(e, i, PROMPT, 10 - 3 * i, 2 + i, -1);
    outcome skipped = run_all(e);
    ck_assert_int_eq(skipped.pad_rows, 0);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

enum { N_REQUESTS = 6 };

static void assert_tokens(const dlab_model *m, const char *plan, outcome *want)
{
    char sets[320];
    snprintf(sets, sizeof sets, "compute=f32 kv.k=f32 kv.v=f32 threads=2 %s", plan);
    dlab_engine *e = open_engine(m, sets, 4, 64, 0);
    for (int i = 0; i < N_REQUESTS; i++) submit(e, i, PROMPT + i, 3 + 5 * i, 12 - i, -1);
    outcome got = run_all(e);
    if (want->n[0] == 0) *want = got;
    for (int i = 0; i < N_REQUESTS; i++) {
        ck_assert_msg(got.n[i] == 12 - i && memcmp(got.ids[i], want->ids[i], sizeof got.ids[i]) == 0,
                      "%s: request %d gave other tokens", sets, i);
    }
    dlab_engine_destroy(e);
}

/* Walks the tables of stores, batchers and devices, so that a new entry is held to the same tokens. */
START_TEST(padding_and_neighbours_do_not_change_a_token)
{
    static const char *const shapes[] = {"batch.size=1", "batch.size=4", "batch.size=3 batch.padding=skip"};
    static const char *const split[] = {"", "batch.chunk=3", "batch.token_budget=5", "kv.growth=double"};
    dlab_model *m = open_model("synthetic:tiny");
    outcome want = {0};
    int tried = 0;
    for (size_t s = 0; dlab_kv_stores[s]; s++) {
        for (size_t b = 0; dlab_batchers[b]; b++) {
            for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
                for (size_t c = 0; c < sizeof split / sizeof *split; c++) {
                    if (c > 0 && !dlab_kv_stores[s]->retains) continue;
                    if (strstr(split[c], "growth") && dlab_kv_stores[s]->shares) continue; /* takes blocks on demand */
                    char plan[256];
                    snprintf(plan, sizeof plan, "kv.store=%s batch.mode=%s %s %s", dlab_kv_stores[s]->name,
                             dlab_batchers[b]->name, shapes[k], split[c]);
                    assert_tokens(m, plan, &want);
                    tried++;
                }
            }
            for (size_t d = 0; dlab_devices[d]; d++) {
                char plan[256];
                snprintf(plan, sizeof plan, "kv.store=%s batch.mode=%s batch.size=2 device=%s", dlab_kv_stores[s]->name,
                         dlab_batchers[b]->name, dlab_devices[d]->name);
                assert_tokens(m, plan, &want);
            }
        }
    }
    ck_assert_int_ge(tried, 15);
    dlab_model_close(m);
}
END_TEST

START_TEST(none_recomputes_everything_and_its_flops_say_so)
{
    dlab_model *m = open_model("synthetic:tiny");
    dlab_engine *cached = open_engine(m, "kv.store=contiguous", 1, 64, 0),
                *none = open_engine(m, "kv.store=none", 1, 64, 0);
    submit(cached, 0, PROMPT, 20, 5, -1);
    submit(none, 0, PROMPT, 20, 5, -1);
    outcome a = run_all(cached), b = run_all(none);
    ck_assert_int_eq(a.decode_rows, 4);
    ck_assert_int_eq(b.decode_rows, 21 + 22 + 23 + 24);
    ck_assert(b.flops > 3.5 * a.flops);
    /* the store that keeps nothing holds one layer at a time, and no token after a step */
    ck_assert_int_eq(kv_of(cached).pool_bytes, kv_of(none).pool_bytes * dlab_model_get_info(m)->n_layers);
    ck_assert_int_eq(b.kv_used_last, 0);
    ck_assert_int_gt(a.kv_used_last, 0);
    dlab_engine_destroy(cached);
    dlab_engine_destroy(none);
    dlab_model_close(m);
}
END_TEST

START_TEST(a_primed_prefix_is_prefilled_once_and_rewound)
{
    dlab_model *m = open_model("synthetic:tiny");
    static const char *const stores[] = {"contiguous", "none"};
    for (int k = 0; k < 2; k++) {
        char sets[128];
        snprintf(sets, sizeof sets, "kv.store=%s kv.k=f32 kv.v=f32 compute=f32", stores[k]);
        dlab_engine *whole = open_engine(m, sets, 1, 64, 0), *e = open_engine(m, sets, 1, 64, 0);
        submit(whole, 0, PROMPT, 40, 6, -1);
        outcome want = run_all(whole);
        int32_t handle = -1;
        OK(dlab_engine_prime(e, PROMPT, 37, &handle, err));
        for (int repeat = 0; repeat < 3; repeat++) {
            submit(e, 0, PROMPT + 37, 3, 6, handle);
            outcome got = run_all(e);
            ck_assert_int_eq(got.prefill_rows, k == 0 ? 3 : 40);
            ck_assert_mem_eq(got.ids[0], want.ids[0], sizeof got.ids[0]);
            dlab_engine_cancel(e, false);
        }
        dlab_engine_unprime(e);
        ck_assert_int_eq(kv_of(e).reserved_bytes, 0);
        dlab_engine_destroy(whole);
        dlab_engine_destroy(e);
    }
    dlab_model_close(m);
}
END_TEST

START_TEST(end_of_sequence_ends_a_request)
{
    dlab_model *m = open_model("synthetic:tiny");
    dlab_engine *e = open_engine(m, "", 1, 64, 0);
    submit(e, 0, PROMPT, 8, 10, -1);
    outcome all = run_all(e);
    int32_t eos = all.ids[0][3];
    int first = 0;
    while (all.ids[0][first] != eos) first++;
    dlab_engine_request r = {.id = 0, .prompt = PROMPT, .n_prompt = 8, .max_new = 10, .eos = eos, .primed = -1};
    OK(dlab_engine_submit(e, &r, err));
    outcome cut = run_all(e);
    ck_assert_int_eq(cut.n[0], first + 1);
    ck_assert_int_eq(cut.finish[0], DLAB_FINISH_EOS);
    ck_assert_int_eq(all.finish[0], DLAB_FINISH_LENGTH);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

START_TEST(sampling_depends_on_the_seed_alone)
{
    dlab_model *m = open_model("synthetic:tiny");
    outcome want = {0};
    static const char *const plans[] = {"batch.size=1", "batch.size=4 threads=3", "batch.size=4 kv.store=none"};
    for (int p = 0; p < 3; p++) {
        char sets[160];
        snprintf(sets, sizeof sets, "sample.temperature=1 sample.top_p=0.9 sample.top_k=50 kv.k=f32 kv.v=f32 %s",
                 plans[p]);
        dlab_engine *e = open_engine(m, sets, 4, 64, 0);
        for (int i = 0; i < 4; i++) submit(e, i, PROMPT + i, 6, 20, -1);
        outcome got = run_all(e);
        if (p == 0) want = got;
        ck_assert_mem_eq(got.ids, want.ids, sizeof got.ids);
        dlab_engine_destroy(e);
    }
    ck_assert(memcmp(want.ids[0], want.ids[1], sizeof want.ids[0]) != 0);
    dlab_model_close(m);
}
END_TEST

/* More requests than places: some start, end, and are preempted while others run. */
static const char *const busy_plans[] = {
    "batch.mode=static", "batch.mode=static batch.release=at_end",
    "batch.mode=continuous batch.chunk=5 batch.policy=priority",
    "batch.mode=continuous kv.store=paged kv.pool=6blocks batch.policy=length_grouped"};
enum { N_BUSY_PLANS = sizeof busy_plans / sizeof *busy_plans };

static dlab_engine *open_busy(const dlab_model *m, int plan)
{
    char sets[256];
    snprintf(sets, sizeof sets, "batch.size=3 threads=2 kv.growth=fixed %s", busy_plans[plan]);
    return open_engine(m, sets, 3, 64, 0);
}

START_TEST(a_step_allocates_nothing_after_the_first)
{
    dlab_model *m = open_model("synthetic:tiny-q4");
    dlab_engine *e = open_busy(m, _i);
    int preempted = 0;
    for (int warm = 0; warm < 2; warm++) {
        for (int i = 0; i < 7; i++) submit(e, i, PROMPT, 12 + i, 30, -1);
        dlab_mem_stats before, after;
        dlab_engine_memory(e, &before);
        long mallocs = n_mallocs;
        while (dlab_engine_busy(e)) {
            dlab_step st;
            dlab_error err;
            if (dlab_engine_step(e, &st, &err) != DLAB_OK) ck_abort_msg("%s", err.msg);
            preempted += st.preempted;
        }
        mallocs = n_mallocs - mallocs;
        dlab_engine_memory(e, &after);
        ck_assert(after.n_allocs == before.n_allocs);
        if (warm && COUNTS_MALLOC) ck_assert_int_eq(mallocs, 0);
    }
    ck_assert_int_eq(preempted > 0, strstr(busy_plans[_i], "6blocks") != NULL);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

START_TEST(a_step_makes_no_system_call_but_those_of_waiting_threads)
{
    if (!COUNTS_MALLOC) { /* a sanitizer's runtime makes calls of its own */
        fprintf(stderr, "skipped under a sanitizer: the system calls of a step\n");
        return;
    }
    dlab_model *m = open_model("synthetic:tiny-q4");
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dlab_engine *e = open_busy(m, _i);
        dlab_step st;
        dlab_error err;
        for (int i = 0; i < 7; i++) submit(e, i, PROMPT, 12, 30, -1);
        for (int i = 0; i < 3; i++) dlab_engine_step(e, &st, &err);
        if (!only_waiting_allowed()) _exit(77);
        while (dlab_engine_busy(e)) {
            if (dlab_engine_step(e, &st, &err) != DLAB_OK) _exit(1);
        }
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        fprintf(stderr, "skipped: this system has no seccomp filters\n");
    else
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a step made a system call: wait status %x",
                      status);
    dlab_model_close(m);
}
END_TEST

START_TEST(live_sequences_are_counted_whether_or_not_they_have_rows)
{
    dlab_model *m = open_model("synthetic:tiny");
    dlab_engine *e = open_engine(m, "batch.mode=static batch.size=4 batch.token_budget=4 batch.padding=skip", 4, 64, 0);
    for (int i = 0; i < 4; i++) submit(e, i, PROMPT, 4, 2, -1);
    outcome o = run_all(e);
    /* four prefill steps, one sequence each, and one decode step: all four are alive in every one */
    ck_assert_int_eq(o.steps, 5);
    ck_assert_int_eq(o.live_sum, 20);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

START_TEST(an_ended_batch_leaves_the_engine_free)
{
    dlab_model *m = open_model("synthetic:tiny");
    dlab_engine *e = open_engine(m, "", 1, 64, 0);
    submit(e, 0, PROMPT, 4, 2, -1);
    run_all(e);
    ck_assert_int_eq(kv_of(e).reserved_bytes, 0);
    double nll[4];
    OK(dlab_engine_score(e, PROMPT, 4, 4, nll, NULL, NULL, err));
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

START_TEST(a_request_that_can_never_start_is_an_error_not_a_wait)
{
    dlab_model *m = open_model("synthetic:tiny");
    dlab_engine *e = open_engine(m, "", 1, 64, 0);
    int32_t handle;
    OK(dlab_engine_prime(e, PROMPT, 8, &handle, err));
    submit(e, 3, PROMPT, 4, 2, -1);
    dlab_step st;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_engine_step(e, &st, &err), DLAB_EIMPOSSIBLE);
    ck_assert_msg(strstr(err.msg, "request 3") != NULL, "%s", err.msg);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

/* Each run pays for its own growth, the one after a warm-up too. */
START_TEST(a_growing_store_counts_its_growths_in_every_run)
{
    dlab_model *m = open_model("synthetic:tiny");
    dlab_engine *e = open_engine(m, "kv.growth=double", 1, 500, 0);
    int32_t ids[400];
    fill_ids(ids, 400, 200, 3);
    for (int run = 1; run <= 3; run++) {
        int64_t small = kv_of(e).pool_bytes;
        dlab_engine_reset_peaks(e);
        submit(e, 0, ids, 400, 2, -1);
        run_all(e);
        dlab_kv_stats kv = kv_of(e);
        ck_assert_int_eq(kv.n_growths, run); /* 256 → 500, bounded by the maximum */
        ck_assert_int_eq(kv.pool_bytes, small * 500 / 256);
        dlab_mem_stats mem;
        dlab_engine_memory(e, &mem);
        ck_assert_int_eq((int64_t)mem.pool[DLAB_POOL_KV].used_bytes, kv.pool_bytes);
        ck_assert_int_eq((int64_t)mem.pool[DLAB_POOL_KV].peak_bytes, kv.pool_bytes + small);
        dlab_engine_cancel(e, false);
        ck_assert_int_eq(kv_of(e).pool_bytes, small);
    }
    /* a primed prefix keeps what it needs, and its content */
    int32_t handle = -1, ended[2][8];
    OK(dlab_engine_prime(e, ids, 300, &handle, err));
    for (int run = 0; run < 2; run++) {
        submit(e, 0, ids + 300, 5, 8, handle);
        outcome o = run_all(e);
        memcpy(ended[run], o.ids[0], sizeof ended[run]);
        dlab_engine_cancel(e, false);
    }
    ck_assert_mem_eq(ended[0], ended[1], sizeof ended[0]);
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

static void refuses(const dlab_model *m, const char *sets, int64_t tokens, dlab_status want, const char *word)
{
    dlab_plan p = plan_of(sets);
    dlab_engine_needs needs = {.max_seqs = 1, .max_tokens = tokens, .max_prompt = tokens};
    dlab_engine *e = NULL;
    dlab_error err = {0};
    dlab_status st = dlab_engine_create(&p, m, &needs, &e, &err);
    ck_assert_msg(st == want && strstr(err.msg, word), "%s: status %s, message '%s'", sets, dlab_status_name(st),
                  err.msg);
    ck_assert_ptr_null(e);
}

START_TEST(plans_that_cannot_work_say_why)
{
    dlab_model *m = open_model("synthetic:tiny");
    refuses(m, "kv.store=none kv.growth=double", 64, DLAB_EIMPOSSIBLE, "kv.growth");
    refuses(m, "kv.store=none batch.chunk=8", 64, DLAB_EIMPOSSIBLE, "batch.chunk");
    refuses(m, "kv.store=none batch.token_budget=8", 64, DLAB_EIMPOSSIBLE, "batch.token_budget");
    refuses(m, "batch.size=8 batch.token_budget=4", 64, DLAB_EIMPOSSIBLE, "batch.token_budget");
    refuses(m, "compute=int8", 64, DLAB_EIMPOSSIBLE,
            "compute: int8 needs quantized weights, and most of this model's are F32");
    refuses(m, "compute=bf16", 64, DLAB_EIMPOSSIBLE,
            "compute: bf16 needs bf16 weights, and most of this model's are F32");
    refuses(m, "kv.max_tokens=32", 64, DLAB_EIMPOSSIBLE, "kv.max_tokens");
    refuses(m, "", 1 << 24, DLAB_EIMPOSSIBLE, "context");
    refuses(m, "memory_limit=64KiB", 64, DLAB_EOOM, "left");
    dlab_error err = {0};
    dlab_plan p;
    dlab_plan_default(&p);
    ck_assert_int_eq(dlab_plan_set(&p, "kv.stoer=none", &err), DLAB_EUSAGE);
    ck_assert_msg(strstr(err.msg, "kv.store") != NULL, "%s", err.msg);
    ck_assert_int_eq(dlab_plan_set(&p, "kv.store", &err), DLAB_EUSAGE);
    dlab_model_close(m);
}
END_TEST

START_TEST(requests_that_cannot_fit_are_refused_with_the_sum)
{
    dlab_model *m = open_model("synthetic:tiny");
    dlab_engine *e = open_engine(m, "", 1, 16, 0);
    dlab_engine_request r = {.id = 4, .prompt = PROMPT, .n_prompt = 12, .max_new = 6, .eos = -1, .primed = -1};
    dlab_error err = {0};
    ck_assert_int_eq(dlab_engine_submit(e, &r, &err), DLAB_EIMPOSSIBLE);
    ck_assert_msg(strstr(err.msg, "17") && strstr(err.msg, "16"), "%s", err.msg);
    r.max_new = 5; /* the last token needs no place */
    ck_assert_msg(dlab_engine_submit(e, &r, &err) == DLAB_OK, "%s", err.msg);
    r.id = 4;
    while (dlab_engine_busy(e)) {
        dlab_step st;
        ck_assert_msg(dlab_engine_step(e, &st, &err) == DLAB_OK, "%s", err.msg);
    }
    int32_t wild = 100000;
    r = (dlab_engine_request){.prompt = &wild, .n_prompt = 1, .max_new = 1, .primed = -1};
    ck_assert_int_eq(dlab_engine_submit(e, &r, &err), DLAB_EUSAGE);
    r = (dlab_engine_request){.prompt = PROMPT, .n_prompt = 1, .max_new = 1, .primed = 0};
    ck_assert_int_eq(dlab_engine_submit(e, &r, &err), DLAB_EUSAGE);
    ck_assert(!dlab_engine_busy(e));
    dlab_engine_destroy(e);
    dlab_model_close(m);
}
END_TEST

START_TEST(the_estimate_is_what_the_pools_measure)
{
    static const char *const plans[] = {"",
                                        "kv.store=none",
                                        "attention.kernel=unfused batch.size=2",
                                        "compute=f32 kv.k=f32",
                                        "sample.temperature=1",
                                        "kv.max_tokens=100"};
    dlab_model *m = open_model("synthetic:tiny-q4");
    const dlab_model_info *info = dlab_model_get_info(m);
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        dlab_engine *e = open_engine(m, plans[p], 2, 64, 4);
        dlab_plan plan = plan_of(plans[p]);
        dlab_engine_needs needs = {.max_seqs = 2, .max_tokens = 64, .max_prompt = 64, .max_logits = 4};
        size_t want[DLAB_POOL_N];
        OK(dlab_engine_estimate(&plan, m, &needs, want, err));
        dlab_mem_stats got;
        dlab_engine_memory(e, &got);
        for (int i = 0; i < DLAB_POOL_N; i++) {
            ck_assert_msg(got.pool[i].used_bytes >= want[i] && got.pool[i].used_bytes <= want[i] + 64 * 24,
                          "%s: pool %s holds %zu, estimated %zu", plans[p], dlab_pool_name((dlab_pool)i),
                          got.pool[i].used_bytes, want[i]);
        }
        dlab_engine_destroy(e);
    }
    /* K4 by hand: 2 · layers · kv_heads · head_dim · tokens · batch · 2 bytes */
    dlab_kv_need need;
    OK(dlab_kv_plan("f16", "f16", info->n_layers, info->n_kv_heads, info->head_dim, 64, 2, &need, err));
    ck_assert_int_eq(need.total_bytes, 2LL * info->n_layers * info->n_kv_heads * info->head_dim * 64 * 2 * 2);
    dlab_error err = {0};
    ck_assert_int_eq(dlab_kv_plan("f16", "f16", INT64_MAX / 2, 3, 64, 1, 1, &need, &err), DLAB_EUSAGE);
    ck_assert_int_eq(dlab_kv_plan("f17", "f16", 1, 1, 64, 1, 1, &need, &err), DLAB_EUSAGE);
    dlab_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine");
    TCase *t = tcase_create("requests");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_static_batch_pads_to_the_longest_and_ends_with_it);
    tcase_add_test(t, padding_and_neighbours_do_not_change_a_token);
    tcase_add_test(t, none_recomputes_everything_and_its_flops_say_so);
    tcase_add_test(t, a_primed_prefix_is_prefilled_once_and_rewound);
    tcase_add_test(t, end_of_sequence_ends_a_request);
    tcase_add_test(t, sampling_depends_on_the_seed_alone);
    tcase_add_loop_test(t, a_step_allocates_nothing_after_the_first, 0, N_BUSY_PLANS);
    tcase_add_loop_test(t, a_step_makes_no_system_call_but_those_of_waiting_threads, 0, N_BUSY_PLANS);
    tcase_add_test(t, a_growing_store_counts_its_growths_in_every_run);
    tcase_add_test(t, live_sequences_are_counted_whether_or_not_they_have_rows);
    tcase_add_test(t, an_ended_batch_leaves_the_engine_free);
    tcase_add_test(t, a_request_that_can_never_start_is_an_error_not_a_wait);
    tcase_add_test(t, plans_that_cannot_work_say_why);
    tcase_add_test(t, requests_that_cannot_fit_are_refused_with_the_sum);
    tcase_add_test(t, the_estimate_is_what_the_pools_measure);
    suite_add_tcase(s, t);
    return run_suite(s);
}
