/* Checks parallel HDF5: all ranks write one data set by collective calls, rows of it each, then
 * read columns, which other ranks wrote, and compare every number. The same by independent calls in
 * a second data set of another shape, and an attribute. The file has no times in it, so that two
 * runs write equal files.
 *
 * usage: mpirun ... hdf5_check FILE
 * Ends with a line "hdf5_check: N checks, 0 wrong"; exit code 1 if anything was wrong. */
#include <hdf5.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1200, COLUMNS = 960, SHORT = 5000 };

static long checks, wrong;
static int rank, ranks;

static void check(int good, const char *what, long detail)
{
    checks++;
    if (!good) {
        wrong++;
        fprintf(stderr, "hdf5_check: rank %d: %s (%ld) is wrong\n", rank, what, detail);
    }
}

static hid_t must(hid_t id, const char *what)
{
    if (id < 0) {
        fprintf(stderr, "hdf5_check: rank %d: %s failed\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return id;
}

static double value(uint64_t row, uint64_t column)
{
    return (double)(row * 1000003 + column * 17) / 7.0;
}

/* The part of n that this rank has, as first and count. */
static void share(uint64_t n, hsize_t *first, hsize_t *count)
{
    *first = n * rank / ranks;
    *count = n * (rank + 1) / ranks - *first;
}

static hid_t transfer(H5FD_mpio_xfer_t how)
{
    hid_t list = must(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");
    must(H5Pset_dxpl_mpio(list, how), "H5Pset_dxpl_mpio");
    return list;
}

/* Reads or writes the block [first, first + count) of a data set. */
static void block(hid_t set, const hsize_t *first, const hsize_t *count, H5FD_mpio_xfer_t how,
                  double *data, int writes)
{
    hid_t in_file = must(H5Dget_space(set), "H5Dget_space");
    hid_t in_memory = must(H5Screate_simple(2, count, NULL), "H5Screate_simple");
    hid_t list = transfer(how);
    must(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, first, NULL, count, NULL), "hyperslab");
    if (writes)
        must(H5Dwrite(set, H5T_NATIVE_DOUBLE, in_memory, in_file, list, data), "H5Dwrite");
    else
        must(H5Dread(set, H5T_NATIVE_DOUBLE, in_memory, in_file, list, data), "H5Dread");
    H5Pclose(list);
    H5Sclose(in_memory);
    H5Sclose(in_file);
}

/* Writes rows and reads columns of a data set. */
static void set_check(hid_t file, const char *name, hsize_t rows, hsize_t columns,
                      H5FD_mpio_xfer_t how)
{
    hsize_t all[2] = {rows, columns}, first[2] = {0, 0}, count[2] = {0, columns};
    hid_t space = must(H5Screate_simple(2, all, NULL), "H5Screate_simple");
    hid_t plain = must(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
    must(H5Pset_obj_track_times(plain, 0), "H5Pset_obj_track_times");
    hid_t set = must(H5Dcreate2(file, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, plain, H5P_DEFAULT),
                     "H5Dcreate2");
    double *data = malloc(sizeof *data * (rows / ranks + 1) * columns);
    double *back = malloc(sizeof *back * rows * (columns / ranks + 1));
    share(rows, &first[0], &count[0]);
    for (hsize_t r = 0; r < count[0]; r++)
        for (hsize_t c = 0; c < columns; c++)
            data[r * columns + c] = value(first[0] + r, c);
    block(set, first, count, how, data, 1);
    must(H5Fflush(file, H5F_SCOPE_GLOBAL), "H5Fflush");
    MPI_Barrier(MPI_COMM_WORLD);
    first[0] = 0;
    count[0] = rows;
    share(columns, &first[1], &count[1]);
    block(set, first, count, how, back, 0);
    for (hsize_t r = 0; r < rows; r++) {
        int same = 1;
        for (hsize_t c = 0; c < count[1]; c++)
            same &= back[r * count[1] + c] == value(r, first[1] + c);
        check(same, name, r);
    }
    free(back);
    free(data);
    H5Dclose(set);
    H5Pclose(plain);
    H5Sclose(space);
}

static hid_t list_of_file(void)
{
    hid_t list = must(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
    must(H5Pset_fapl_mpio(list, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
    return list;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    hid_t list = list_of_file();
    hid_t file = must(H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, list), "H5Fcreate");
    set_check(file, "collective", ROWS, COLUMNS, H5FD_MPIO_COLLECTIVE);
    set_check(file, "independent", 3, SHORT, H5FD_MPIO_INDEPENDENT);
    hid_t one = must(H5Screate(H5S_SCALAR), "H5Screate");
    hid_t note = must(H5Acreate2(file, "ranks", H5T_STD_I32LE, one, H5P_DEFAULT, H5P_DEFAULT),
                      "H5Acreate2");
    must(H5Awrite(note, H5T_NATIVE_INT, &ranks), "H5Awrite");
    H5Aclose(note);
    H5Sclose(one);
    must(H5Fclose(file), "H5Fclose");
    /* As another program would find it. */
    file = must(H5Fopen(argv[1], H5F_ACC_RDONLY, list), "H5Fopen");
    int told = 0;
    note = must(H5Aopen(file, "ranks", H5P_DEFAULT), "H5Aopen");
    must(H5Aread(note, H5T_NATIVE_INT, &told), "H5Aread");
    check(told == ranks, "attribute", told);
    H5Aclose(note);
    must(H5Fclose(file), "H5Fclose");
    H5Pclose(list);
    long own[2] = {checks, wrong}, all[2] = {0, 0};
    MPI_Reduce(own, all, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("hdf5_check: %ld checks, %ld wrong\n", all[0], all[1]);
    MPI_Finalize();
    return wrong != 0;
}
