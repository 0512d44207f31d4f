/* libefa.so.1: every call goes to libibverbs.so.1, where the device is. */
#include <stdint.h>

void *srd_efadv_cq_from_ibv_cq_ex(void *a);
void *efadv_cq_from_ibv_cq_ex(void *a)
{
    return srd_efadv_cq_from_ibv_cq_ex(a);
}

void *srd_efadv_create_comp_cntr(void *a, void *b, void *c, uint32_t d);
void *efadv_create_comp_cntr(void *a, void *b, void *c, uint32_t d)
{
    return srd_efadv_create_comp_cntr(a, b, c, d);
}

void *srd_efadv_create_cq(void *a, void *b, void *c, uint32_t d);
void *efadv_create_cq(void *a, void *b, void *c, uint32_t d)
{
    return srd_efadv_create_cq(a, b, c, d);
}

void *srd_efadv_create_driver_qp(void *a, void *b, uint32_t c);
void *efadv_create_driver_qp(void *a, void *b, uint32_t c)
{
    return srd_efadv_create_driver_qp(a, b, c);
}

void *srd_efadv_create_qp_ex(void *a, void *b, void *c, uint32_t d);
void *efadv_create_qp_ex(void *a, void *b, void *c, uint32_t d)
{
    return srd_efadv_create_qp_ex(a, b, c, d);
}

int srd_efadv_get_max_rq_depth(void *a, void *b, uint32_t c);
int efadv_get_max_rq_depth(void *a, void *b, uint32_t c)
{
    return srd_efadv_get_max_rq_depth(a, b, c);
}

int srd_efadv_get_max_sq_depth(void *a, void *b, uint32_t c);
int efadv_get_max_sq_depth(void *a, void *b, uint32_t c)
{
    return srd_efadv_get_max_sq_depth(a, b, c);
}

void *srd_efadv_qp_from_ibv_qp_ex(void *a);
void *efadv_qp_from_ibv_qp_ex(void *a)
{
    return srd_efadv_qp_from_ibv_qp_ex(a);
}

int srd_efadv_query_ah(void *a, void *b, uint32_t c);
int efadv_query_ah(void *a, void *b, uint32_t c)
{
    return srd_efadv_query_ah(a, b, c);
}

int srd_efadv_query_cq(void *a, void *b, uint32_t c);
int efadv_query_cq(void *a, void *b, uint32_t c)
{
    return srd_efadv_query_cq(a, b, c);
}

int srd_efadv_query_device(void *a, void *b, uint32_t c);
int efadv_query_device(void *a, void *b, uint32_t c)
{
    return srd_efadv_query_device(a, b, c);
}

int srd_efadv_query_mr(void *a, void *b, uint32_t c);
int efadv_query_mr(void *a, void *b, uint32_t c)
{
    return srd_efadv_query_mr(a, b, c);
}

int srd_efadv_query_qp_wqs(void *a, void *b, void *c, uint32_t d);
int efadv_query_qp_wqs(void *a, void *b, void *c, uint32_t d)
{
    return srd_efadv_query_qp_wqs(a, b, c, d);
}
