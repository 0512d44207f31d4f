/* C interface of software SRD.
 *
 * Generated from bindings/c/src by `SRD_HEADER_UPDATE=1 cargo test -p srd-c --test header`.
 *
 * Every function that returns int gives 0 (or a count) on success and a negative errno on failure;
 * srd_last_error() then says in words what was wrong and what to do. Objects are made by *_create,
 * *_open, *_register and must be taken apart in the opposite order; taking apart something that is
 * still in use fails with -EBUSY. Functions may be called from several threads, but an object must
 * not be taken apart while another thread uses it.
 */

#ifndef SRD_H
#define SRD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How a path is chosen for each packet or burst.
enum srd_path_policy {
    // Paths that came back clean first, then by penalties.
    SRD_PATH_POLICY_SRD = 0,
    // Round robin.
    SRD_PATH_POLICY_OBLIVIOUS = 1,
    // One path per peer.
    SRD_PATH_POLICY_ECMP = 2,
    // The better of two drawn at random.
    SRD_PATH_POLICY_RTT_P2C = 3,
};

// How the rate is set.
enum srd_rate_policy {
    // By delivery rate and delay.
    SRD_RATE_POLICY_SRD = 0,
    // Constant.
    SRD_RATE_POLICY_FIXED = 1,
};

// Who drives the device.
enum srd_progress {
    // The caller: by polls, waits and srd_device_progress.
    SRD_PROGRESS_CALLER = 0,
    // A thread of the device.
    SRD_PROGRESS_THREAD = 1,
};

// Access rights, to be added up.
enum srd_access {
    // The device may write into it (receives, reads).
    SRD_ACCESS_LOCAL_WRITE = 1,
    // Peers may write; needs local write, too.
    SRD_ACCESS_REMOTE_WRITE = 2,
    // Peers may read.
    SRD_ACCESS_REMOTE_READ = 4,
};

// Types of queue pairs.
enum srd_qp_type {
    // Reliable datagrams.
    SRD_QP_TYPE_SRD = 0,
    // Unreliable datagrams; a received message comes after 40 bytes (GRH).
    SRD_QP_TYPE_UD = 1,
};

// States of a queue pair: EFA's numbers.
enum srd_qp_state {
    SRD_QP_STATE_RESET = 0,
    SRD_QP_STATE_INIT = 1,
    SRD_QP_STATE_RTR = 2,
    SRD_QP_STATE_RTS = 3,
    SRD_QP_STATE_SQD = 4,
    SRD_QP_STATE_SQE = 5,
    SRD_QP_STATE_ERR = 6,
};

// Operations of send requests.
enum srd_opcode {
    // Message of at most max_msg_sz bytes.
    SRD_OPCODE_SEND = 0,
    // Message with immediate data.
    SRD_OPCODE_SEND_IMM = 1,
    // RDMA write.
    SRD_OPCODE_WRITE = 2,
    // RDMA write with immediate data.
    SRD_OPCODE_WRITE_IMM = 3,
    // RDMA read.
    SRD_OPCODE_READ = 4,
};

// What a completion is for.
enum srd_wc_opcode {
    // A message sent.
    SRD_WC_OPCODE_SEND = 0,
    // An RDMA write.
    SRD_WC_OPCODE_WRITE = 1,
    // An RDMA read.
    SRD_WC_OPCODE_READ = 2,
    // A message received.
    SRD_WC_OPCODE_RECV = 128,
    // A peer's write with immediate.
    SRD_WC_OPCODE_RECV_RDMA_IMM = 129,
};

// How a work request ended: EFA's numbers. srd_status_text says each in words.
enum srd_wc_status {
    // Success.
    SRD_WC_STATUS_OK = 0,
    // The queue pair went to ERR; it may have been executed. Reset or recreate the queue pair.
    SRD_WC_STATUS_FLUSHED = 1,
    // The device has failed by an error in this software. Open another one.
    SRD_WC_STATUS_LOCAL_QP_INTERNAL_ERROR = 2,
    // The engine refuses the operation; no case is known.
    SRD_WC_STATUS_LOCAL_UNSUPPORTED_OP = 3,
    // The address handle was destroyed before the end. Keep it until the completion.
    SRD_WC_STATUS_LOCAL_INVALID_AH = 4,
    // A memory region was deregistered before the end. Keep it until the completion.
    SRD_WC_STATUS_LOCAL_INVALID_LKEY = 5,
    // Longer than the MTU agreed with this peer, or than the path carries now. Send less.
    SRD_WC_STATUS_LOCAL_BAD_LENGTH = 6,
    // RDMA: the peer has no such region, or not that range or access right.
    SRD_WC_STATUS_REMOTE_BAD_ADDRESS = 7,
    // The peer restarted or shut down; it may have been executed, once at most.
    SRD_WC_STATUS_REMOTE_ABORT = 8,
    // The peer has no such queue pair, or it is not ready, or the Q_Key differs.
    SRD_WC_STATUS_REMOTE_BAD_DEST_QPN = 9,
    // The peer had no receive posted in time. Post more there, or raise rnr_retry.
    SRD_WC_STATUS_REMOTE_RNR = 10,
    // The receive posted at the peer is shorter than the message. Post larger ones.
    SRD_WC_STATUS_REMOTE_BAD_LENGTH = 11,
    // The peer gave an invalid answer. Check the version that runs there.
    SRD_WC_STATUS_REMOTE_BAD_STATUS = 12,
    // The peer answered before, but has been silent for 5 s; it may have been executed.
    SRD_WC_STATUS_LOCAL_UNRESP_REMOTE = 13,
    // RDMA: the peer has no address handle for this host. It must create one and keep it.
    SRD_WC_STATUS_REMOTE_UNKNOWN_PEER = 14,
    // The peer has never answered: not running, wrong address, or a firewall.
    SRD_WC_STATUS_LOCAL_UNREACH_REMOTE = 15,
    // The peer does not offer the operation.
    SRD_WC_STATUS_REMOTE_FEATURE_MISMATCH = 18,
};

// Kinds of asynchronous events.
enum srd_event_type {
    // The peer answered before and is silent now.
    SRD_EVENT_TYPE_PEER_UNRESPONSIVE = 1,
    // The peer never answered.
    SRD_EVENT_TYPE_PEER_UNREACHABLE = 2,
    // The peer lost its state.
    SRD_EVENT_TYPE_PEER_RESET = 3,
    // A path was taken out of use.
    SRD_EVENT_TYPE_PATH_RETIRED = 4,
    // A path is in use again.
    SRD_EVENT_TYPE_PATH_RETURNED = 5,
    // A queue pair went to the error state by itself.
    SRD_EVENT_TYPE_QP_FATAL = 6,
    // A queue pair in SQD has no request left.
    SRD_EVENT_TYPE_SQ_DRAINED = 7,
    // The sockets are broken.
    SRD_EVENT_TYPE_DATAPATH_ERROR = 8,
    // A defect of the library: all requests ended with an error, and nothing works any more.
    SRD_EVENT_TYPE_DEVICE_FATAL = 9,
    // A request to the device's own address was refused by the device itself: who meant another
    // process has the address of one that has gone.
    SRD_EVENT_TYPE_PEER_IS_SELF = 10,
    // Packets to an address have another size from now on: the way there, or the local link,
    // carries only smaller ones, or larger ones again. RDMA requests go on with packets of that
    // size; longer messages end with status 6.
    SRD_EVENT_TYPE_PATH_MTU = 11,
    // The peer answered that the two sides do not agree on sealing; `error` is its code (5: it
    // accepts sealed contexts only, 6: it has no key file, 7: the keys differ). Anybody can send
    // such an answer.
    SRD_EVENT_TYPE_SEAL_REFUSED = 12,
    // This device refused a peer for that reason; `error` is the code that the peer was told.
    SRD_EVENT_TYPE_SEAL_DENIED = 13,
    // The key file has changed and cannot be used; the keys of its last good version stay.
    SRD_EVENT_TYPE_KEY_FILE_REFUSED = 14,
    // The context to this peer was ended because its key left the key file and requests that had
    // begun did not end within 10 seconds; outstanding requests ended with status 8.
    SRD_EVENT_TYPE_KEY_REMOVED = 15,
};

// State of a path.
enum srd_path_state {
    // In use.
    SRD_PATH_STATE_ACTIVE = 0,
    // Out of use after losses; the device probes it.
    SRD_PATH_STATE_FAILED = 1,
    // Out of use; one probe came back, and the next one decides.
    SRD_PATH_STATE_PROBING = 2,
    // Out of use by order of an operator (`srd paths deny`).
    SRD_PATH_STATE_DENIED = 3,
};

// Bits of srd_wc.flags.
enum srd_wc_flags {
    // `imm` is valid.
    SRD_WC_FLAGS_IMM = 1,
    // `src_gid` is valid.
    SRD_WC_FLAGS_SRC_GID = 2,
    // No receive was consumed, `wr_id` is 0.
    SRD_WC_FLAGS_UNSOLICITED = 4,
};

// Which fields of srd_qp_attr srd_qp_modify uses; to be added up.
enum srd_qp_mask {
    // `state`.
    SRD_QP_MASK_STATE = 1,
    // `qkey`.
    SRD_QP_MASK_QKEY = 2,
    // `rnr_retry`.
    SRD_QP_MASK_RNR_RETRY = 4,
};

// An address handle: one remote host.
struct srd_ah;

// A completion channel.
struct srd_channel;

// A completion queue.
struct srd_cq;

// A device: one engine with its UDP sockets.
struct srd_device;

// A registered memory region.
struct srd_mr;

// A subscription to the changes of all paths of a device.
struct srd_path_events;

// A protection domain.
struct srd_pd;

// A queue pair.
struct srd_qp;

// A completion.
struct srd_wc {
    // The number given when it was posted.
    uint64_t wr_id;
    // A srd_wc_status.
    uint32_t status;
    // A srd_wc_opcode.
    uint32_t opcode;
    // Bytes.
    uint32_t byte_len;
    // Immediate data.
    uint32_t imm;
    // Bits of srd_wc_flags.
    uint32_t flags;
    // Local queue pair.
    uint16_t qpn;
    // Receive: the sender's queue pair.
    uint16_t src_qpn;
    // Receive: number of an address handle of the sender; 0xFFFF = there is none.
    uint16_t src_ah;
    // Receive: the sender's address.
    uint8_t src_gid[16];
};

// How to open a device; srd_device_config_init fills in the defaults.
struct srd_device_config {
    // Local IP address or name of a network interface; NULL = 127.0.0.1.
    const char *bind;
    // Engine slot 0 to 255, or -1 = the first that is free.
    int32_t slot;
    // First of 256 UDP ports, the same on all hosts; 0 = the default.
    uint16_t port_base;
    // Largest message in bytes; 0 = what the link carries.
    uint16_t mtu;
    // Paths per peer: a power of two up to 256; 0 = 64.
    uint16_t paths;
    // A srd_path_policy.
    uint8_t path_policy;
    // A srd_rate_policy.
    uint8_t rate_policy;
    // A srd_progress.
    uint8_t progress;
    // With a thread: microseconds that it looks for work before it sleeps.
    uint32_t spin_us;
};

// What a device is and can do; names are EFA's.
struct srd_device_attr {
    // Deepest send queue.
    uint32_t max_sq_wr;
    // Deepest receive queue.
    uint32_t max_rq_wr;
    // Scatter/gather entries of a send request.
    uint32_t max_sq_sge;
    // Scatter/gather entries of a receive.
    uint32_t max_rq_sge;
    // Most inline bytes.
    uint32_t inline_buf_size_ex;
    // Largest RDMA operation in bytes.
    uint32_t max_rdma_size;
    // Abilities, bits as in efadv.
    uint32_t device_caps;
    // Queue pairs.
    uint32_t max_qp;
    // Completion queues.
    uint32_t max_cq;
    // Slots of a completion queue.
    uint32_t max_cqe;
    // Largest message in bytes.
    uint32_t max_msg_sz;
    // UDP port.
    uint16_t udp_port;
    // Paths per peer.
    uint16_t paths;
    // Local address as a GID: IPv6, or IPv4 mapped.
    uint8_t gid[16];
};

// The most used counters; names are EFA's port statistics.
struct srd_counters {
    uint64_t tx_bytes;
    uint64_t tx_pkts;
    uint64_t rx_bytes;
    uint64_t rx_pkts;
    uint64_t rx_drops;
    uint64_t send_bytes;
    uint64_t send_wrs;
    uint64_t recv_bytes;
    uint64_t recv_wrs;
    uint64_t rdma_read_wrs;
    uint64_t rdma_read_bytes;
    uint64_t rdma_read_wr_err;
    uint64_t rdma_read_resp_bytes;
    uint64_t rdma_write_wrs;
    uint64_t rdma_write_bytes;
    uint64_t rdma_write_wr_err;
    uint64_t rdma_write_recv_bytes;
    uint64_t retrans_bytes;
    uint64_t retrans_pkts;
    uint64_t retrans_timeout_events;
    uint64_t unresponsive_remote_events;
    uint64_t impaired_remote_conn_events;
    uint64_t qkey_viol;
    uint64_t rnr_events;
    uint64_t dup_pkts;
    uint64_t paths_retired;
    // Datagrams that were no packets.
    uint64_t malformed_pkts;
};

// An asynchronous event.
struct srd_event {
    // A srd_event_type.
    uint32_t event_type;
    // Peer, path or path MTU: the address as a GID.
    uint8_t gid[16];
    // Peer: its UDP port.
    uint16_t port;
    // Queue pair events: its number.
    uint16_t qpn;
    // Path events: the path.
    uint8_t path;
    // Path MTU: bytes of payload of one packet to the address at most.
    uint16_t payload_max;
    // Datapath error: the errno. Seal refused or denied: the code.
    int32_t error;
};

// A path has changed its state.
struct srd_path_event {
    // When, in ns of CLOCK_MONOTONIC.
    uint64_t at_ns;
    // The address that the path leads to, as a GID.
    uint8_t gid[16];
    // Number of the path.
    uint8_t path;
    // A srd_path_state: before. From SRD_PATH_STATE_DENIED: an operator allows it again.
    uint8_t from;
    // A srd_path_state: now.
    uint8_t to;
};

// How to create a queue pair; srd_qp_init_defaults fills in all but the completion queues.
struct srd_qp_init {
    // A srd_qp_type.
    uint32_t qp_type;
    // Completions of sends go here.
    const struct srd_cq *send_cq;
    // Completions of receives go here; may be the same.
    const struct srd_cq *recv_cq;
    // Send requests outstanding at most.
    uint32_t sq_depth;
    // Receives posted at most.
    uint32_t rq_depth;
    // Scatter/gather entries per send request.
    uint32_t send_sges_max;
    // Scatter/gather entries per receive.
    uint32_t recv_sges_max;
    // Inline bytes per send request.
    uint32_t inline_bytes_max;
    // A peer's write with immediate consumes no receive.
    bool unsolicited_write_recv;
};

// State of a queue pair.
struct srd_qp_attr {
    // A srd_qp_state.
    uint32_t state;
    // Q_Key.
    uint32_t qkey;
    // RNR retries, 0 to 8; 7 = for ever, 8 = 4,000 retries, which take a minute.
    uint32_t rnr_retry;
};

// A piece of registered memory.
struct srd_sge {
    // Address of the first byte.
    uint64_t addr;
    // Bytes.
    uint32_t len;
    // Key of its region.
    uint32_t lkey;
};

// A send request.
struct srd_send_wr {
    // Comes back in the completion.
    uint64_t wr_id;
    // A srd_opcode.
    uint32_t opcode;
    // To which host.
    const struct srd_ah *ah;
    // To which queue pair there.
    uint16_t dst_qpn;
    // Its Q_Key.
    uint32_t qkey;
    // Local data in registered memory.
    const struct srd_sge *sges;
    // Entries of `sges`.
    uint32_t num_sge;
    // Local data copied at the post instead; NULL = use `sges`.
    const void *inline_data;
    // Bytes of `inline_data`.
    uint32_t inline_len;
    // RDMA: first byte of the remote memory.
    uint64_t raddr;
    // RDMA: its key.
    uint32_t rkey;
    // Immediate data.
    uint32_t imm;
};

// A receive request.
struct srd_recv_wr {
    // Comes back in the completion.
    uint64_t wr_id;
    // Where the message goes.
    const struct srd_sge *sges;
    // Entries of `sges`.
    uint32_t num_sge;
};

// One path to an address.
struct srd_path_stats {
    // Smoothed round trip in ns; 0 = none measured.
    uint64_t rtt_ns_smoothed;
    // Least round trip in ns; 0 = none measured.
    uint64_t rtt_ns_min;
    // Packets sent on it.
    uint64_t packets_sent;
    // Those of them that were declared lost.
    uint64_t packets_lost;
    // Packets acknowledged with the mark of congestion (CE).
    uint64_t packets_ce;
    // Number of the path.
    uint8_t path;
    // A srd_path_state.
    uint8_t state;
};

// One peer: a device at another address or port. Rate, bytes in flight and round trips are those
// of its address, which several peers may share.
struct srd_peer_stats {
    // Its address as a GID.
    uint8_t gid[16];
    // Bytes per second at which packets leave.
    uint64_t rate_bytes_per_sec;
    // Bytes in flight.
    uint64_t inflight_bytes;
    // Most bytes in flight: the congestion window.
    uint64_t inflight_bytes_max;
    // Smoothed round trip in ns.
    uint64_t rtt_ns_smoothed;
    // Recent least round trip in ns.
    uint64_t rtt_ns_min;
    // Send requests that have not ended.
    uint32_t outstanding;
    // Its UDP port.
    uint16_t port;
    // No path to it answers.
    bool stalled;
    // Each packet is encrypted and authenticated.
    bool sealed;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a completion channel.
int srd_channel_create(const struct srd_device *device, struct srd_channel **channel);

// Descriptor of a channel: readable while events wait. With SRD_PROGRESS_CALLER somebody must
// drive the device for events to come.
int srd_channel_fd(const struct srd_channel *channel);

// Takes the oldest event of a channel, waiting `timeout_us` microseconds at most (negative = no
// limit): `context` gets the number that the completion queue was created with. Returns 1, or 0
// after the time has passed.
int srd_channel_get(const struct srd_channel *channel, int64_t timeout_us, uint64_t *context);

// Takes a channel apart. -EBUSY while a completion queue reports to it.
int srd_channel_destroy(struct srd_channel *channel);

// Makes a completion queue of `depth` slots. `channel` may be NULL; `context` comes back in its
// events.
int srd_cq_create(const struct srd_device *device,
                  uint32_t depth,
                  const struct srd_channel *channel,
                  uint64_t context,
                  struct srd_cq **cq);

// Takes a completion queue apart. -EBUSY while a queue pair uses it.
int srd_cq_destroy(struct srd_cq *cq);

// Takes up to `n` completions into `wc`; returns how many. Never waits.
int srd_cq_poll(const struct srd_cq *cq, struct srd_wc *wc, uint32_t n);

// Takes one completion, waiting `timeout_us` microseconds at most. Drives the device if nobody
// else does. Returns 1, or 0 after the time has passed.
int srd_cq_wait(const struct srd_cq *cq, struct srd_wc *wc, uint64_t timeout_us);

// Arms a completion queue: the next completion makes one event on its channel. Poll once more
// after this.
int srd_cq_req_notify(const struct srd_cq *cq);

// What a srd_wc_status means, in words. Never NULL.
const char *srd_status_text(uint32_t status);

// Fills in the defaults: 127.0.0.1, first free slot, 64 paths, driven by a thread that sleeps when
// idle.
int srd_device_config_init(struct srd_device_config *config);

// Opens a device. `config` may be NULL for the defaults.
int srd_device_open(const struct srd_device_config *config, struct srd_device **device);

// Closes a device; its peers are told. -EBUSY while objects of it exist.
int srd_device_close(struct srd_device *device);

// What the device is and can do.
int srd_device_query(const struct srd_device *device, struct srd_device_attr *attr);

// Copies the warning number `index` about this host into `buffer`, cut to `len` bytes with the
// nul. Returns its whole length, or -ENOENT when there is no such warning.
int srd_device_warning(const struct srd_device *device,
                       uint32_t index,
                       char *buffer,
                       uintptr_t len);

// One turn of the engine. Returns 1 if anything was done, else 0.
int srd_device_progress(const struct srd_device *device);

// Sleeps until there may be something to do, `timeout_us` microseconds at most (negative = no
// limit), then takes a turn. Returns 1 if anything was done, else 0.
int srd_device_wait(const struct srd_device *device, int64_t timeout_us);

// Reads the counters.
int srd_device_counters(const struct srd_device *device, struct srd_counters *counters);

// A descriptor that is readable while asynchronous events wait. It belongs to the device.
int srd_event_fd(const struct srd_device *device);

// Takes the oldest asynchronous event. Returns 1, or 0 when there is none.
int srd_event_get(const struct srd_device *device, struct srd_event *event);

// Makes a protection domain.
int srd_pd_create(const struct srd_device *device, struct srd_pd **pd);

// Takes a protection domain apart. -EBUSY while something made from it exists.
int srd_pd_destroy(struct srd_pd *pd);

// Makes an address handle for the host with this IP address (text).
int srd_ah_create(const struct srd_pd *pd, const char *address, struct srd_ah **ah);

// Makes an address handle for the host with this GID (16 bytes).
int srd_ah_create_gid(const struct srd_pd *pd, const uint8_t *gid, struct srd_ah **ah);

// Number of an address handle, as completions name senders.
int srd_ah_number(const struct srd_ah *ah);

// Takes an address handle apart. Outstanding requests through it end with status 4.
int srd_ah_destroy(struct srd_ah *ah);

// What went wrong in the last failed call of this thread, in words; empty if none failed. Valid
// until the next failed call of the same thread.
const char *srd_last_error(void);

// Registers `len` bytes at `addr`, which must stay valid until srd_mr_deregister has returned.
int srd_mr_register(const struct srd_pd *pd,
                    void *addr,
                    uintptr_t len,
                    uint32_t access,
                    struct srd_mr **mr);

// As srd_mr_register, with the first byte named `iova` in requests and by peers.
int srd_mr_register_iova(const struct srd_pd *pd,
                         void *addr,
                         uintptr_t len,
                         uint64_t iova,
                         uint32_t access,
                         struct srd_mr **mr);

// Key of a region: lkey and rkey are the same. 0 for NULL.
uint32_t srd_mr_key(const struct srd_mr *mr);

// Deregisters a region. When this returns, the device touches the memory no more; outstanding
// requests that use it end with status 5.
int srd_mr_deregister(struct srd_mr *mr);

// Subscribes to the changes of all paths of a device, from now on: at most 16 subscriptions, and
// 1024 changes that wait for each; if they are taken too late, the oldest are dropped, and
// srd_path_events_missed counts them. A subscription drives no device: with SRD_PROGRESS_CALLER
// changes happen in the turns of the caller.
int srd_path_events_open(const struct srd_device *device, struct srd_path_events **events);

// Takes the oldest change, waiting `timeout_us` microseconds at most (negative = no limit, rounded
// up to milliseconds). Returns 1, or 0 when there is none.
int srd_path_events_get(const struct srd_path_events *events,
                        struct srd_path_event *event,
                        int64_t timeout_us);

// A descriptor that is readable while changes wait. It belongs to the subscription.
int srd_path_events_fd(const struct srd_path_events *events);

// Changes that were dropped so far because too many waited, at most 2147483647.
int srd_path_events_missed(const struct srd_path_events *events);

// Ends a subscription.
int srd_path_events_close(struct srd_path_events *events);

// Fills in the defaults: SRD, 256 sends and receives, 32 inline bytes, both queues `cq`.
int srd_qp_init_defaults(struct srd_qp_init *init, const struct srd_cq *cq);

// Makes a queue pair in the state RESET.
int srd_qp_create(const struct srd_pd *pd, const struct srd_qp_init *init, struct srd_qp **qp);

// Takes a queue pair apart: its requests are withdrawn, its completions removed.
int srd_qp_destroy(struct srd_qp *qp);

// Number of a queue pair, as peers name it: 0 to 65535.
int srd_qp_number(const struct srd_qp *qp);

// Takes a fresh queue pair through INIT and RTR to RTS. `rnr_retry` is 0 to 8, 7 = for ever, 8 =
// 4,000 retries, which take a minute.
int srd_qp_activate(const struct srd_qp *qp, uint32_t qkey, uint32_t rnr_retry);

// Changes the fields of a queue pair that `mask` names (sum of srd_qp_mask).
int srd_qp_modify(const struct srd_qp *qp, const struct srd_qp_attr *attr, uint32_t mask);

// Reads state, Q_Key and RNR retries.
int srd_qp_query(const struct srd_qp *qp, struct srd_qp_attr *attr);

// Posts a send request. Never waits; -ENOMEM = full, poll the completion queue.
int srd_qp_post_send(const struct srd_qp *qp, const struct srd_send_wr *wr);

// Posts `n` send requests at once, all or none, which costs less than one by one. Never waits;
// -ENOMEM = no room for all, poll the completion queue.
int srd_qp_post_sends(const struct srd_qp *qp, const struct srd_send_wr *wrs, uint32_t n);

// Posts a receive. Never waits; -ENOMEM = full, poll the completion queue.
int srd_qp_post_recv(const struct srd_qp *qp, const struct srd_recv_wr *wr);

// Posts `n` receives at once, which costs less than one by one. Returns how many were posted: if
// fewer, the next one was refused, and srd_last_error says why. Never waits; -ENOMEM = full.
int srd_qp_post_recvs(const struct srd_qp *qp, const struct srd_recv_wr *wrs, uint32_t n);

// Reads at most `n` paths to the host of an address handle, in the order of their numbers. Returns
// how many paths there are, which may be more: 0 if nothing was ever sent there.
int srd_ah_paths(const struct srd_ah *ah, struct srd_path_stats *paths, uint32_t n);

// Reads at most `n` peers of a device. Returns how many there are, which may be more.
int srd_device_peers(const struct srd_device *device, struct srd_peer_stats *peers, uint32_t n);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SRD_H */
