/* The names by which rdma-core's own libraries call each other, in each of the versions that they
 * had. Drivers that are linked into a program (perftest and UCX name libmlx5) do not load without
 * them; none of them finds a device of its own here, so nothing is ever called in earnest. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

static int not_supported(void)
{
    return EOPNOTSUPP;
}

/* Called when such a library is loaded: a driver more or less changes nothing. */
static void ignored(void)
{
}

/* Rust's, which has the first of the private versions; pyverbs asks for that of its own release. */
extern int ibv_query_gid_type(void *context, uint8_t port, int index, int *type);

static int query_gid_type(void *context, uint8_t port, int index, int *type)
{
    return ibv_query_gid_type(context, port, index, type);
}

/* One name in one version. */
#define ONE(target, name, version)                                                                 \
    extern __typeof__(target) srd_##name##_##version __attribute__((alias(#target)));              \
    __asm__(".symver srd_" #name "_" #version "," #name "@IBVERBS_PRIVATE_" #version)
/* One name in every version. */
#define NAME(name)                                                                                 \
    ONE(not_supported, name, 34);                                                                  \
    ONE(not_supported, name, 57);                                                                  \
    ONE(not_supported, name, 59);                                                                  \
    ONE(not_supported, name, 64);                                                                  \
    ONE(not_supported, name, 65)
/* The name of the call by which a driver of that version registers. */
#define DRIVER(version)                                                                            \
    extern __typeof__(ignored) srd_register_##version __attribute__((alias("ignored")));           \
    __asm__(".symver srd_register_" #version ",verbs_register_driver_" #version                    \
            "@IBVERBS_PRIVATE_" #version)
/* A variable, in every version. */
static bool no_disassociate;
#define FLAG(version)                                                                              \
    extern bool srd_disassociate_##version __attribute__((alias("no_disassociate")));              \
    __asm__(".symver srd_disassociate_" #version ",verbs_allow_disassociate_destroy"               \
            "@IBVERBS_PRIVATE_" #version)

ONE(query_gid_type, ibv_query_gid_type, 57);
ONE(query_gid_type, ibv_query_gid_type, 59);
ONE(query_gid_type, ibv_query_gid_type, 64);
ONE(query_gid_type, ibv_query_gid_type, 65);

DRIVER(34);
DRIVER(57);
DRIVER(59);
DRIVER(64);
DRIVER(65);
FLAG(34);
FLAG(57);
FLAG(59);
FLAG(64);
FLAG(65);

NAME(__ioctl_final_num_attrs);
NAME(__verbs_log);
NAME(_verbs_init_and_alloc_context);
NAME(execute_ioctl);
NAME(ibv_cmd_advise_mr);
NAME(ibv_cmd_alloc_dm);
NAME(ibv_cmd_alloc_dmah);
NAME(ibv_cmd_alloc_mw);
NAME(ibv_cmd_alloc_pd);
NAME(ibv_cmd_attach_mcast);
NAME(ibv_cmd_close_xrcd);
NAME(ibv_cmd_create_ah);
NAME(ibv_cmd_create_comp_cntr);
NAME(ibv_cmd_create_counters);
NAME(ibv_cmd_create_cq);
NAME(ibv_cmd_create_cq_ex);
NAME(ibv_cmd_create_cq_ex2);
NAME(ibv_cmd_create_flow);
NAME(ibv_cmd_create_flow_action_esp);
NAME(ibv_cmd_create_qp);
NAME(ibv_cmd_create_qp_ex);
NAME(ibv_cmd_create_qp_ex2);
NAME(ibv_cmd_create_rwq_ind_table);
NAME(ibv_cmd_create_srq);
NAME(ibv_cmd_create_srq_ex);
NAME(ibv_cmd_create_wq);
NAME(ibv_cmd_dealloc_mw);
NAME(ibv_cmd_dealloc_pd);
NAME(ibv_cmd_dereg_mr);
NAME(ibv_cmd_destroy_ah);
NAME(ibv_cmd_destroy_comp_cntr);
NAME(ibv_cmd_destroy_counters);
NAME(ibv_cmd_destroy_cq);
NAME(ibv_cmd_destroy_flow);
NAME(ibv_cmd_destroy_flow_action);
NAME(ibv_cmd_destroy_qp);
NAME(ibv_cmd_destroy_rwq_ind_table);
NAME(ibv_cmd_destroy_srq);
NAME(ibv_cmd_destroy_wq);
NAME(ibv_cmd_detach_mcast);
NAME(ibv_cmd_export_dmabuf_fd);
NAME(ibv_cmd_free_dm);
NAME(ibv_cmd_free_dmah);
NAME(ibv_cmd_get_context);
NAME(ibv_cmd_inc_comp_cntr);
NAME(ibv_cmd_inc_err_comp_cntr);
NAME(ibv_cmd_modify_cq);
NAME(ibv_cmd_modify_flow_action_esp);
NAME(ibv_cmd_modify_qp);
NAME(ibv_cmd_modify_qp_ex);
NAME(ibv_cmd_modify_srq);
NAME(ibv_cmd_modify_wq);
NAME(ibv_cmd_open_qp);
NAME(ibv_cmd_open_xrcd);
NAME(ibv_cmd_poll_cq);
NAME(ibv_cmd_post_recv);
NAME(ibv_cmd_post_send);
NAME(ibv_cmd_post_srq_recv);
NAME(ibv_cmd_qp_attach_comp_cntr);
NAME(ibv_cmd_query_comp_cntr_caps);
NAME(ibv_cmd_query_context);
NAME(ibv_cmd_query_device_any);
NAME(ibv_cmd_query_mr);
NAME(ibv_cmd_query_port);
NAME(ibv_cmd_query_port_speed);
NAME(ibv_cmd_query_qp);
NAME(ibv_cmd_query_srq);
NAME(ibv_cmd_read_comp_cntr);
NAME(ibv_cmd_read_counters);
NAME(ibv_cmd_read_err_comp_cntr);
NAME(ibv_cmd_reg_dm_mr);
NAME(ibv_cmd_reg_dmabuf_mr);
NAME(ibv_cmd_reg_mr);
NAME(ibv_cmd_reg_mr_ex);
NAME(ibv_cmd_req_notify_cq);
NAME(ibv_cmd_rereg_mr);
NAME(ibv_cmd_resize_cq);
NAME(ibv_cmd_set_comp_cntr);
NAME(ibv_cmd_set_err_comp_cntr);
NAME(ibv_dmabuf_heap_alloc);
NAME(ibv_dmabuf_heap_cc_shared_init);
NAME(ibv_dmabuf_heap_destroy);
NAME(ibv_dmabuf_heap_free);
NAME(ibv_read_ibdev_sysfs_file);
NAME(ibv_wr_opcode_str);
NAME(verbs_init_cq);
NAME(verbs_open_device);
NAME(verbs_set_ops);
NAME(verbs_uninit_context);
