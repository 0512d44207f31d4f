/* Two devices in one process exchange messages, then one writes into the other's memory.
 *
 *   cc pingpong.c $(pkg-config --cflags --libs srd) -o pingpong && ./pingpong [ROUNDS]
 *
 * where software SRD is installed (docs/install.md says how, and how pkg-config finds it). In a
 * checkout nothing need be installed:
 *
 *   cargo build --release -p srd-c
 *   cc -Ibindings/c/include bindings/c/examples/pingpong.c target/release/libsrd_c.a \
 *      -lm -lgcc_s -o pingpong && ./pingpong [ROUNDS]
 *
 * Two processes on two hosts differ from this only in that each opens one device and that they
 * tell each other address, queue pair number, and (for RDMA) memory address and key.
 */
#include "srd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QKEY 0x1234u
#define MESSAGE_BYTES 64u
#define BLOCK_BYTES (1u << 20)
#define TIMEOUT_US 10000000u

/* One side: a device with everything that is made from it. */
struct side {
    struct srd_device *device;
    struct srd_pd *pd;
    struct srd_cq *cq;
    struct srd_qp *qp;
    struct srd_mr *mr;
    struct srd_ah *peer;
    unsigned char *memory;
    struct srd_device_attr attr;
    uint16_t qpn;
};

/* Ends the program if a call failed. */
static int check(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s (errno %d)\n", what, srd_last_error(), -result);
        exit(1);
    }
    return result;
}

static void side_open(struct side *s)
{
    struct srd_device_config config;
    struct srd_qp_init init;
    uint32_t access = SRD_ACCESS_LOCAL_WRITE | SRD_ACCESS_REMOTE_WRITE | SRD_ACCESS_REMOTE_READ;
    char warning[512];

    check(srd_device_config_init(&config), "srd_device_config_init");
    config.progress = SRD_PROGRESS_CALLER;
    check(srd_device_open(&config, &s->device), "srd_device_open");
    check(srd_device_query(s->device, &s->attr), "srd_device_query");
    for (uint32_t i = 0; srd_device_warning(s->device, i, warning, sizeof warning) >= 0; i++)
        fprintf(stderr, "warning: %s\n", warning);

    check(srd_pd_create(s->device, &s->pd), "srd_pd_create");
    check(srd_cq_create(s->device, 64, NULL, 0, &s->cq), "srd_cq_create");
    check(srd_qp_init_defaults(&init, s->cq), "srd_qp_init_defaults");
    init.inline_bytes_max = MESSAGE_BYTES;
    check(srd_qp_create(s->pd, &init, &s->qp), "srd_qp_create");
    check(srd_qp_activate(s->qp, QKEY, 7), "srd_qp_activate");
    s->qpn = (uint16_t)check(srd_qp_number(s->qp), "srd_qp_number");

    s->memory = calloc(1, BLOCK_BYTES);
    if (s->memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    check(srd_mr_register(s->pd, s->memory, BLOCK_BYTES, access, &s->mr), "srd_mr_register");
}

static void side_close(struct side *s)
{
    check(srd_ah_destroy(s->peer), "srd_ah_destroy");
    check(srd_qp_destroy(s->qp), "srd_qp_destroy");
    check(srd_mr_deregister(s->mr), "srd_mr_deregister");
    check(srd_cq_destroy(s->cq), "srd_cq_destroy");
    check(srd_pd_destroy(s->pd), "srd_pd_destroy");
    check(srd_device_close(s->device), "srd_device_close");
    free(s->memory);
}

static void receive_post(struct side *s, uint64_t wr_id)
{
    struct srd_sge sge = {(uint64_t)(uintptr_t)s->memory, MESSAGE_BYTES, srd_mr_key(s->mr)};
    struct srd_recv_wr wr = {wr_id, &sge, 1};

    check(srd_qp_post_recv(s->qp, &wr), "srd_qp_post_recv");
}

static void message_send(struct side *from, const struct side *to, uint64_t wr_id,
                         const unsigned char *bytes)
{
    struct srd_send_wr wr;

    memset(&wr, 0, sizeof wr);
    wr.wr_id = wr_id;
    wr.opcode = SRD_OPCODE_SEND;
    wr.ah = from->peer;
    wr.dst_qpn = to->qpn;
    wr.qkey = QKEY;
    wr.inline_data = bytes;
    wr.inline_len = MESSAGE_BYTES;
    check(srd_qp_post_send(from->qp, &wr), "srd_qp_post_send");
}

/* Waits until `s` has a completion of the kind `opcode`; `other` is driven, too. */
static struct srd_wc completion_wait(struct side *s, struct side *other, uint32_t opcode)
{
    time_t end = time(NULL) + TIMEOUT_US / 1000000;
    struct srd_wc wc;

    while (time(NULL) <= end) {
        check(srd_device_progress(other->device), "srd_device_progress");
        if (check(srd_cq_poll(s->cq, &wc, 1), "srd_cq_poll") == 0)
            continue;
        if (wc.status != SRD_WC_STATUS_OK) {
            fprintf(stderr, "request %llu: %s\n", (unsigned long long)wc.wr_id,
                    srd_status_text(wc.status));
            exit(1);
        }
        if (wc.opcode == opcode)
            return wc;
    }
    fprintf(stderr, "no completion in time\n");
    exit(1);
}

static void pingpong(struct side *a, struct side *b, unsigned rounds)
{
    unsigned char out[MESSAGE_BYTES];

    for (unsigned i = 0; i < rounds; i++) {
        memset(out, (int)(i & 0xff), sizeof out);
        receive_post(b, i);
        message_send(a, b, i, out);
        completion_wait(b, a, SRD_WC_OPCODE_RECV);
        if (memcmp(b->memory, out, sizeof out) != 0) {
            fprintf(stderr, "round %u: other bytes arrived than were sent\n", i);
            exit(1);
        }
        completion_wait(a, b, SRD_WC_OPCODE_SEND);

        receive_post(a, i);
        message_send(b, a, i, b->memory);
        completion_wait(a, b, SRD_WC_OPCODE_RECV);
        completion_wait(b, a, SRD_WC_OPCODE_SEND);
    }
    printf("%u round trips of %u bytes\n", rounds, MESSAGE_BYTES);
}

static void block_write(struct side *a, struct side *b)
{
    struct srd_sge sge = {(uint64_t)(uintptr_t)a->memory, BLOCK_BYTES, srd_mr_key(a->mr)};
    struct srd_send_wr wr;

    for (size_t i = 0; i < BLOCK_BYTES; i++)
        a->memory[i] = (unsigned char)(i * 31 + 7);
    memset(&wr, 0, sizeof wr);
    wr.wr_id = 1000;
    wr.opcode = SRD_OPCODE_WRITE;
    wr.ah = a->peer;
    wr.dst_qpn = b->qpn;
    wr.qkey = QKEY;
    wr.sges = &sge;
    wr.num_sge = 1;
    wr.raddr = (uint64_t)(uintptr_t)b->memory;
    wr.rkey = srd_mr_key(b->mr);
    check(srd_qp_post_send(a->qp, &wr), "srd_qp_post_send");
    completion_wait(a, b, SRD_WC_OPCODE_WRITE);
    if (memcmp(a->memory, b->memory, BLOCK_BYTES) != 0) {
        fprintf(stderr, "the block arrived damaged\n");
        exit(1);
    }
    printf("wrote %u bytes into the peer's memory\n", BLOCK_BYTES);
}

int main(int argc, char **argv)
{
    struct side a, b;
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000;

    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    side_open(&a);
    side_open(&b);
    check(srd_ah_create_gid(a.pd, b.attr.gid, &a.peer), "srd_ah_create_gid");
    check(srd_ah_create(b.pd, "127.0.0.1", &b.peer), "srd_ah_create");

    if (srd_device_close(a.device) >= 0) {
        fprintf(stderr, "a device in use could be closed\n");
        return 1;
    }
    pingpong(&a, &b, rounds);
    block_write(&a, &b);

    side_close(&a);
    side_close(&b);
    return 0;
}
