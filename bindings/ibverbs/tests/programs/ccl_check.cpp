/* Collectives of oneCCL on the processor's memory, every element compared: allreduce of several
 * kinds and sizes, allgatherv, reduce_scatter, broadcast and alltoall.
 *
 * ccl_check ADDRESS_PORT [RANK SIZE]: the ranks meet at the address of rank 0 and a free port,
 * written `10.1.0.10_18500`. Without a rank, an MPI launcher has set it. Ends with
 * `ccl_check: N checks, M wrong` of rank 0, which counts those of all. */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <oneapi/ccl.hpp>
#include <vector>

static int rank, size;
static unsigned long long checks, wrong;

template <typename T> static void same(const char *what, size_t at, T got, T wanted)
{
    checks++;
    if (got != wanted && wrong++ < 8)
        std::printf("ccl_check: rank %d: %s: element %zu\n", rank, what, at);
}

/* Element `i` of what a rank gives: small whole numbers, whose sums every type has exactly. */
template <typename T> static T given(int of, size_t i)
{
    return static_cast<T>((i * 7 + static_cast<size_t>(of) * 13) % 101);
}

template <typename T> static T sum(size_t i)
{
    T total = 0;
    for (int r = 0; r < size; r++)
        total = static_cast<T>(total + given<T>(r, i));
    return total;
}

template <typename T> static std::vector<T> mine(size_t count)
{
    std::vector<T> all(count);
    for (size_t i = 0; i < count; i++)
        all[i] = given<T>(rank, i);
    return all;
}

template <typename T> static void allreduce(const ccl::communicator &comm, size_t count)
{
    std::vector<T> in = mine<T>(count), out(count + 1, T(99));
    ccl::allreduce(in.data(), out.data(), count, ccl::reduction::sum, comm).wait();
    for (size_t i = 0; i < count; i++)
        same("allreduce, sum", i, out[i], sum<T>(i));
    same("allreduce, behind the end", count, out[count], T(99));
    ccl::allreduce(in.data(), in.data(), count, ccl::reduction::max, comm).wait();
    for (size_t i = 0; i < count; i++) {
        T largest = given<T>(0, i);
        for (int r = 1; r < size; r++)
            largest = std::max(largest, given<T>(r, i));
        same("allreduce in place, max", i, in[i], largest);
    }
}

static void others(const ccl::communicator &comm, size_t count)
{
    std::vector<float> in = mine<float>(count), out(count * static_cast<size_t>(size));
    std::vector<size_t> counts(static_cast<size_t>(size), count);
    ccl::allgatherv(in.data(), count, out.data(), counts, comm).wait();
    for (size_t i = 0; i < out.size(); i++)
        same("allgatherv", i, out[i], given<float>(static_cast<int>(i / count), i % count));

    std::vector<float> long_in = mine<float>(count * static_cast<size_t>(size)), part(count);
    ccl::reduce_scatter(long_in.data(), part.data(), count, ccl::reduction::sum, comm).wait();
    for (size_t i = 0; i < count; i++)
        same("reduce_scatter", i, part[i], sum<float>(static_cast<size_t>(rank) * count + i));

    std::vector<float> told = mine<float>(count);
    ccl::broadcast(told.data(), count, size - 1, comm).wait();
    for (size_t i = 0; i < count; i++)
        same("broadcast", i, told[i], given<float>(size - 1, i));

    ccl::alltoall(long_in.data(), out.data(), count, comm).wait();
    for (size_t i = 0; i < out.size(); i++) {
        size_t at = static_cast<size_t>(rank) * count + i % count;
        same("alltoall", i, out[i], given<float>(static_cast<int>(i / count), at));
    }
}

/* A number of the command line, or of the launcher's variable. */
static int number(int argc, char **argv, int at, const char *variable)
{
    const char *text = argc > at ? argv[at] : std::getenv(variable);
    return text == nullptr ? -1 : std::atoi(text);
}

int main(int argc, char **argv)
{
    rank = number(argc, argv, 2, "PMI_RANK");
    size = number(argc, argv, 3, "PMI_SIZE");
    if (argc < 2 || rank < 0 || size <= rank) {
        std::fprintf(stderr, "ccl_check ADDRESS_PORT [RANK SIZE]\n");
        return 2;
    }
    ccl::init();
    auto attr = ccl::create_kvs_attr();
    attr.set<ccl::kvs_attr_id::ip_port>(ccl::string_class(argv[1]));
    ccl::communicator comm = ccl::create_communicator(size, rank, ccl::create_main_kvs(attr));
    for (size_t count : {size_t(1), size_t(3), size_t(1000), size_t(65537), size_t(1) << 20}) {
        allreduce<float>(comm, count);
        allreduce<double>(comm, count);
        allreduce<int32_t>(comm, count);
        allreduce<int64_t>(comm, count);
        others(comm, count);
    }
    unsigned long long own[2] = {checks, wrong}, all[2];
    ccl::allreduce(own, all, 2, ccl::datatype::uint64, ccl::reduction::sum, comm).wait();
    ccl::barrier(comm);
    ccl::library_version version = ccl::get_library_version();
    if (rank == 0) {
        std::printf("ccl_check: oneCCL %u.%u.%u\n", version.major, version.minor, version.update);
        std::printf("ccl_check: %llu checks, %llu wrong\n", all[0], all[1]);
    }
    return wrong != 0;
}
