/* SPDX-License-Identifier: Apache-2.0
 *
 * api_settings.h: services beside querier.v1 that user interfaces call (proto/WIRE.md, "Settings
 * and rules"): first steps.
 */
#ifndef QUERIER_API_TENANT_API_SETTINGS_H
#define QUERIER_API_TENANT_API_SETTINGS_H

#include "querier/query/query.h"

/* settings.v1.SettingsService */
int api_settings_get(struct query *q, struct err *e);
int api_settings_set(struct query *q, struct err *e);
int api_settings_delete(struct query *q, struct err *e);
/* settings.v1.RecordingRulesService; api_rules.c */
int api_rules_get(struct query *q, struct err *e);
int api_rules_list(struct query *q, struct err *e);
int api_rules_upsert(struct query *q, struct err *e);
int api_rules_delete(struct query *q, struct err *e);
/* capabilities.v1.FeatureFlagsService, version.v1.Version */
int api_feature_flags(struct query *q, struct err *e);
int api_version(struct query *q, struct err *e);

#endif
