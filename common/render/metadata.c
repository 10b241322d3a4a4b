/* SPDX-License-Identifier: Apache-2.0 */
#include "common/render/metadata.h"

void metadata_json(const struct ptype *t, const char *format, struct json *j)
{
    bool cpu = str_eqc(t->sample_type, "cpu");
    bool objects = str_eqc(t->sample_type, "inuse_objects") ||
                   str_eqc(t->sample_type, "alloc_objects") ||
                   str_eqc(t->sample_type, "goroutine") || str_eqc(t->sample_type, "samples");

    json_put_cstr(j, "format", format);
    json_put_cstr(j, "spyName", "");
    json_put_u64(j, "sampleRate", cpu ? 1000000000 : 100);
    json_put_str(j, "units", objects ? STR("objects") : cpu ? STR("samples") : t->sample_unit);
    json_put_str(j, "name", t->sample_type);
}
