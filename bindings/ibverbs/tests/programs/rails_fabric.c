/* Checks two domains in one process (two rails) through libfabric's efa provider: messages to and
 * fro on both with a process on another host. Each must arrive on its rail, whole, and from the
 * sender that sent it: the provider finds senders by what the device's completions say.
 *
 * usage: rails_fabric [SERVER]
 * Without SERVER it waits for the other side (TCP, only to meet and to keep step).
 * Ends with a line "rails_fabric: N checks, 0 wrong"; exit code 1 if anything was wrong. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <string.h>

#define PROGRAM "rails_fabric"
#include "meeting.h"

enum {
    PORT = 18592, /* TCP, where both sides meet */
    RAILS = 2,
    ROUNDS = 100,
    LARGEST = 65536, /* bytes of a message; rounds go through the sizes */
    LIMIT_S = 20,    /* for each wait */
    NAME = 64,       /* bytes of an address at most */
};

struct rail {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    fi_addr_t unused, peer;
    struct fi_context2 out_context, in_context;
    unsigned char *out, *in;
    int sent, received;
};

static struct rail rails[RAILS];

static void fi_must(long ret, const char *what)
{
    if (ret < 0) {
        fprintf(stderr, PROGRAM ": %s: %s\n", what, fi_strerror((int)-ret));
        exit(2);
    }
}

static void rail_open(struct rail *r)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA};
    fi_must(fi_fabric(r->info->fabric_attr, &r->fabric, NULL), "fi_fabric");
    fi_must(fi_domain(r->fabric, r->info, &r->domain, NULL), "fi_domain");
    fi_must(fi_av_open(r->domain, &av, &r->av, NULL), "fi_av_open");
    fi_must(fi_cq_open(r->domain, &cq, &r->cq, NULL), "fi_cq_open");
    fi_must(fi_endpoint(r->domain, r->info, &r->ep, NULL), "fi_endpoint");
    fi_must(fi_ep_bind(r->ep, &r->av->fid, 0), "fi_ep_bind");
    fi_must(fi_ep_bind(r->ep, &r->cq->fid, FI_SEND | FI_RECV), "fi_ep_bind");
    fi_must(fi_enable(r->ep), "fi_enable");
    r->out = calloc(2, LARGEST);
    r->in = r->out + LARGEST;
}

/* The domains: one per device. */
static void domains_open(void)
{
    struct fi_info *hints = fi_allocinfo(), *all, *at;
    int n = 0;
    hints->caps = FI_MSG | FI_SOURCE;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("efa");
    fi_must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &all), "fi_getinfo");
    for (at = all; at && n < RAILS; at = at->next) {
        if (n && !strcmp(at->domain_attr->name, rails[n - 1].info->domain_attr->name))
            continue;
        rails[n++].info = fi_dupinfo(at);
    }
    fi_freeinfo(all);
    fi_freeinfo(hints);
    fi_must(n == RAILS ? 0 : -FI_ENODEV, "a second domain");
    for (int i = 0; i < RAILS; i++)
        rail_open(&rails[i]);
}

static void peers_know(void)
{
    for (int i = 0; i < RAILS; i++) {
        unsigned char own[NAME] = {0}, other[NAME];
        size_t len = sizeof own;
        fi_must(fi_getname(&rails[i].ep->fid, own, &len), "fi_getname");
        tell(own, sizeof own);
        hear(other, sizeof other);
        /* The peer's number differs from rail to rail. */
        if (i == 1)
            fi_must(fi_av_insert(rails[i].av, own, 1, &rails[i].unused, 0, NULL), "fi_av_insert");
        fi_must(fi_av_insert(rails[i].av, other, 1, &rails[i].peer, 0, NULL), "fi_av_insert");
    }
}

static void progress(struct rail *r)
{
    struct fi_cq_data_entry entry;
    struct fi_cq_err_entry error = {0};
    fi_addr_t from = FI_ADDR_NOTAVAIL;
    ssize_t n = fi_cq_readfrom(r->cq, &entry, 1, &from);
    if (n == -FI_EAGAIN)
        return;
    if (n == -FI_EAVAIL) {
        fi_cq_readerr(r->cq, &error, 0);
        fi_must(-error.err, "a completion");
    }
    fi_must(n, "fi_cq_readfrom");
    if (entry.flags & FI_RECV) {
        r->received++;
        check(from == r->peer, "sender", (long)from);
        check(entry.op_context == &r->in_context, "context of a receive", 0);
    } else {
        r->sent++;
        check(entry.op_context == &r->out_context, "context of a send", 0);
    }
}

static void both(int n)
{
    time_t end = time(NULL) + LIMIT_S;
    for (int i = 0; i < RAILS; i++)
        while (rails[i].sent < n || rails[i].received < n) {
            progress(&rails[0]);
            progress(&rails[1]);
            fi_must(time(NULL) > end ? -FI_ETIMEDOUT : 0, "messages");
        }
}

static void rounds(void)
{
    for (int n = 1; n <= ROUNDS; n++) {
        size_t len = (size_t)1 << (n % 17);
        for (int i = 0; i < RAILS; i++) {
            struct rail *r = &rails[i];
            memset(r->out, n + 100 * i + server, len);
            memset(r->in, 0, len);
            fi_must(fi_recv(r->ep, r->in, len, NULL, FI_ADDR_UNSPEC, &r->in_context), "fi_recv");
        }
        for (int i = 0; i < RAILS; i++) {
            struct rail *r = &rails[i];
            ssize_t done;
            while ((done = fi_send(r->ep, r->out, len, NULL, r->peer, &r->out_context)) ==
                   -FI_EAGAIN)
                progress(r);
            fi_must(done, "fi_send");
        }
        both(n);
        for (int i = 0; i < RAILS; i++) {
            unsigned char expected = n + 100 * i + !server;
            int same = 1;
            for (size_t k = 0; k < len; k++)
                same &= rails[i].in[k] == expected;
            check(same, "bytes of rail", i);
        }
        step();
    }
}

int main(int argc, char **argv)
{
    domains_open();
    meet(argc > 1 ? argv[1] : NULL, PORT);
    peers_know();
    rounds();
    for (int i = 0; i < RAILS; i++) {
        struct rail *r = &rails[i];
        check(!fi_close(&r->ep->fid) && !fi_close(&r->cq->fid), "fi_close", i);
        check(!fi_close(&r->av->fid) && !fi_close(&r->domain->fid), "fi_close", i);
        check(!fi_close(&r->fabric->fid), "fi_close", i);
    }
    return verdict();
}
