/* Two calls of the C library that cost each MPI job time for nothing. In processes that preload
 * this library (`srd run`), its functions are found first; they answer these two calls of two
 * callers, and pass all others on to the C library.
 *
 * The start: libfabric's provider `verbs` reads /proc/kallsyms twice in each process, 40 ms of a
 * processor each time, to learn whether the kernel's RDMA can register memory of GPUs. There is no
 * kernel RDMA here. It is told what a process is told that may not read the file, which libfabric
 * takes for "no".
 *
 * The end: Open MPI's component btl/ofi, which carries one-sided operations over libfabric, calls
 * sleep(1) when MPI_Finalize unloads it, because libfabric's provider `sockets` once needed that.
 * The provider `efa` on this library does not: a device that closes waits itself until its peers
 * know the result of their requests. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define GLIBC "GLIBC_2.2.5"
#else
#define GLIBC "GLIBC_2.17"
#endif
/* Gives a function the name and version of the C library's. */
#define REPLACES(name) __asm__(".symver srd_" #name "," #name "@" GLIBC)
/* The C library's function. */
#define LIBC(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Whether the code at this address belongs to the library whose path contains this. */
static bool belongs_to(void *code, const char *library)
{
    Dl_info of;
    return dladdr(code, &of) && of.dli_fname && strstr(of.dli_fname, library);
}

static bool is_kernel_look(void *caller, const char *path)
{
    return path && !strcmp(path, "/proc/kallsyms") && belongs_to(caller, "/libfabric");
}

FILE *srd_fopen(const char *path, const char *mode)
{
    if (is_kernel_look(__builtin_return_address(0), path)) {
        errno = EACCES;
        return NULL;
    }
    return LIBC(fopen)(path, mode);
}

FILE *srd_fopen64(const char *path, const char *mode)
{
    if (is_kernel_look(__builtin_return_address(0), path)) {
        errno = EACCES;
        return NULL;
    }
    return LIBC(fopen64)(path, mode);
}

unsigned int srd_sleep(unsigned int seconds)
{
    if (seconds == 1 && belongs_to(__builtin_return_address(0), "/mca_btl_ofi.so"))
        return 0;
    return LIBC(sleep)(seconds);
}

REPLACES(fopen);
REPLACES(fopen64);
REPLACES(sleep);
