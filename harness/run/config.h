/* A run's configuration as text: what goes over the wire, into the record and into the key. */
#ifndef DLAB_HARNESS_RUN_CONFIG_H
#define DLAB_HARNESS_RUN_CONFIG_H

#include "harness/spec/spec.h"

/* The settings of one table of parameters, every row. */
dlab_status dlab_config_add(const dlab_param *table, size_t n, const void *obj, dlab_settings *out, dlab_error *err);
/* Sets obj's fields from settings that dlab_config_add wrote; a key without a row is DLAB_EFORMAT. */
dlab_status dlab_config_read(const dlab_param *table, size_t n, const dlab_settings *s, void *obj, dlab_error *err);

/* Model, plan, workload, and the keys of `measure:` that shape a run (not repeats, order, seed, hang_timeout). */
dlab_status dlab_config_settings(const char *model, const dlab_plan *plan, const dlab_workload *w,
                                 const dlab_measure *m, dlab_settings *out, dlab_error *err);

/* What two runs must share, besides their configuration, to count as the same. */
typedef struct {
    uint64_t program; /* hash of the program's file */
    uint64_t machine; /* of CPU model, cores and instruction set */
} dlab_config_site;
dlab_status dlab_config_site_get(const char *exe, const dlab_settings *environment, dlab_config_site *out,
                                 dlab_error *err);
/* Hash of the model: of all bytes of a file, of the name of a synthetic one. */
dlab_status dlab_config_model_hash(const char *model, uint64_t *out, dlab_error *err);
/* For a record's meta: now; and a model with that hash. */
dlab_status dlab_config_meta_started(dlab_settings *meta, dlab_error *err);
dlab_status dlab_config_meta_model(dlab_settings *meta, const char *model, uint64_t hash, dlab_error *err);
typedef struct {
    const char *target;
    const dlab_plan *plan; /* effective: what "auto" stands for may differ from run to run, by the CPUs we are given */
    const dlab_workload *workload;
    const dlab_measure *measure;
    uint64_t model_hash;
} dlab_config_run;
/* 16 hex digits of the effective configuration, the target, the model's and the quality text's bytes, the program, the
 * machine and the record's schema. `copy` tells equal points of one experiment apart. */
dlab_status dlab_config_key(const dlab_config_run *r, const dlab_config_site *site, int copy, char key[17],
                            dlab_error *err);

#endif
