/* See candidate.h. */
#include "candidate.h"

void model_write_cost(json_writer *json, int chosen, int fits, double memory_bytes, double seconds)
{
    json_truth(json, "chosen", chosen);
    json_truth(json, "fits", fits);
    json_double(json, "memory_bytes", memory_bytes);
    json_double(json, "microseconds", seconds * 1e6);
}

void model_write_call(json_writer *json, const char *name, const ta_predicted_call *call)
{
    json_open(json, NULL, '{');
    json_string(json, "name", name);
    json_double(json, "microseconds", call->seconds * 1e6);
    json_double(json, "attend_microseconds", call->attend_seconds * 1e6);
    json_int(json, "messages_sent", (int64_t)call->messages_sent);
    json_int(json, "messages_received", (int64_t)call->messages_received);
    json_int(json, "bytes_sent", (int64_t)call->bytes_sent);
    json_int(json, "bytes_received", (int64_t)call->bytes_received);
    json_int(json, "bytes_sent_by_all", (int64_t)call->total_bytes_sent);
    json_close(json, '}');
}
