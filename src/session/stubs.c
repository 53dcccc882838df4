// Stands in for parts that are not there yet.
#include "session/internal.h"
enum tl_refusal tl_session_trampoline_refusal(struct tl_batch *batch, size_t site)
{
    (void)batch, (void)site;
    return TL_REFUSE_TRAMPOLINE;
}
pid_t tl_session_process_pid(struct tl_session *session, const struct tl_batch *batch,
                             uint32_t process)
{
    (void)session;
    return process ? 0 : batch->pid;
}
#define WEAK __attribute__((weak))
WEAK int tl_drain_hist(const struct tl_drain_memory *m, uint32_t probe, struct tl_hist *out, struct tl_diag *diag) {(void)m,(void)probe,(void)out,(void)diag; return -1;}
WEAK void tl_hist_bucket_range(uint32_t bucket, uint64_t *low, uint64_t *high) {*low=*high=bucket;}
WEAK void tl_clock_map_init(struct tl_clock_map *map, bool coarse) {(void)map,(void)coarse;}
WEAK void tl_clock_map_refresh(struct tl_clock_map *map) {(void)map;}
WEAK int tl_stream_create(struct tl_stream **out, struct tl_diag *diag) {(void)out,(void)diag; return -1;}
WEAK void tl_stream_destroy(struct tl_stream *stream) {(void)stream;}
WEAK int tl_stream_add_memory(struct tl_stream *stream, const struct tl_drain_memory *memory, struct tl_diag *diag) {(void)stream,(void)memory,(void)diag; return -1;}
WEAK int tl_stream_read(struct tl_stream *stream, struct tl_clock_map *clock, bool final,
                   int (*take)(void *opaque, uint32_t source, const struct tl_raw_event *event),
                   void *opaque, struct tl_diag *diag) {(void)stream,(void)clock,(void)final,(void)take,(void)opaque,(void)diag; return -1;}
WEAK uint64_t tl_stream_delivered(const struct tl_stream *stream, uint32_t source, uint32_t probe) {(void)stream,(void)source,(void)probe; return 0;}
