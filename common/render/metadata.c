/* SPDX-License-Identifier: Apache-2.0 */
#include "common/render/metadata.h"

void metadata_json(const struct ptype *t, const char *format, struct json *j)
{
    bool cpu = str_eqc(t->sample_type, "cpu");
    bool objects = str_eqc(t->sample_type, "inuse_objects") ||
                   str_eqc(t->sample_type, "alloc_objects") ||
                   str_eqc(t->sample_type, "goroutine") || str_eqc(t->sample_type, "samples");

    json_key(j, "format");
    json_cstr(j, format);
    json_key(j, "spyName");
    json_cstr(j, "");
    json_key(j, "sampleRate");
    json_u64(j, cpu ? 1000000000 : 100);
    json_key(j, "units");
    json_str(j, objects ? STR("objects") : cpu ? STR("samples") : t->sample_unit);
    json_key(j, "name");
    json_str(j, t->sample_type);
}
