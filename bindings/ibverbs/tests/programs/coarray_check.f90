! Checks Fortran coarrays between images: puts and gets of numbers and of sections, also with a
! stride, sums and other collectives, broadcasts, and images that wait for each other. Every number
! is compared. OpenCoarrays gets arrays number by number, each within a lock of its own: there are
! few of those.
!
! usage: mpirun ... coarray_check
! The first image ends with a line "coarray_check: N checks, 0 wrong"; the exit code is 1 if
! anything was wrong.
program coarray_check
  use, intrinsic :: iso_fortran_env, only: int64, real64, error_unit
  implicit none
  integer, parameter :: n = 20000, rounds = 40, few = 500
  real(real64), allocatable :: field(:)[:]
  integer(int64), allocatable :: box(:, :)[:]
  integer(int64) :: checks[*], wrong[*]
  real(real64), allocatable :: section(:)
  integer(int64), allocatable :: total(:)
  real(real64) :: largest
  integer :: me, images, next, before, i, k, round

  me = this_image()
  images = num_images()
  next = merge(1, me + 1, me == images)
  before = merge(images, me - 1, me == 1)
  checks = 0
  wrong = 0
  allocate (field(n)[*], box(64, 64)[*], section(n), total(500))

  ! Puts: each image fills the next one's field, another way in each round.
  do round = 1, rounds
    field = -1.0_real64
    sync all
    do i = 1, n
      section(i) = value(me, round, i)
    end do
    field(:)[next] = section
    sync all
    call check(all_are(field, before, round), "put of a whole array", round)
    sync all
  end do

  ! Puts and gets of one number at a time, and of every third.
  sync all
  do i = 1, 200
    field(i)[next] = value(me, 100, i)
  end do
  sync all
  do i = 1, 200
    call check(same(field(i), value(before, 100, i)), "put of a number", i)
  end do
  sync all
  do i = 1, n
    field(i) = value(me, 200, i)
  end do
  sync all
  do round = 1, 3
    section = -1
    section(1:few) = field(1:few)[next]
    call check(all_are(section(1:few), next, 200), "get of a section", round)
  end do
  section = 0
  section(1:3*few:3) = field(1:3*few:3)[before]
  do i = 1, 3 * few, 3
    call check(same(section(i), value(before, 200, i)), "get with a stride", i)
  end do
  call check(all(section(2:3*few:3) == 0), "what is between", 2)

  ! A block of a matrix.
  box = 0
  sync all
  box(11:20, 31:50)[next] = int(me, int64)
  sync all
  call check(all(box(11:20, 31:50) == before), "block of a matrix", 0)
  call check(sum(box) == 200_int64 * before, "rest of a matrix", 0)

  ! Collectives.
  do round = 1, rounds
    do k = 1, size(total)
      total(k) = int(me, int64) * k + round
    end do
    call co_sum(total)
    do k = 1, size(total)
      call check(total(k) == int(k, int64) * images * (images + 1) / 2 + int(round, int64) * images, &
                 "co_sum", k)
    end do
  end do
  largest = real(me, real64) / 3
  call co_max(largest)
  call check(same(largest, real(images, real64) / 3), "co_max", 0)
  largest = real(me, real64) / 3
  call co_min(largest)
  call check(same(largest, 1.0_real64 / 3), "co_min", 0)
  total = me
  call co_broadcast(total, source_image=images)
  call check(all_equal(total, int(images, int64)), "co_broadcast", 0)

  ! Images that wait for their neighbours only.
  field = me
  do round = 1, rounds
    if (images > 2) then
      sync images([next, before])
    else if (images == 2) then
      sync images([next])
    end if
    call check(same(field(1)[next], real(next, real64)), "sync images", round)
  end do

  sync all
  if (me == 1) then
    do i = 2, images
      checks = checks + checks[i]
      wrong = wrong + wrong[i]
    end do
    print '(a, i0, a, i0, a)', "coarray_check: ", checks, " checks, ", wrong, " wrong"
  end if
  sync all
  if (wrong /= 0) error stop 1

contains

  pure function value(image, round, i)
    integer, intent(in) :: image, round, i
    real(real64) :: value
    value = image * 1.0e6_real64 + round * 3.0e4_real64 + i / 8.0_real64
  end function value

  pure logical function same(a, b)
    real(real64), intent(in) :: a, b
    same = .not. (a < b .or. a > b)
  end function same

  pure logical function all_are(field, image, round)
    real(real64), intent(in) :: field(:)
    integer, intent(in) :: image, round
    integer :: i
    all_are = .true.
    do i = 1, size(field)
      all_are = all_are .and. same(field(i), value(image, round, i))
    end do
  end function all_are

  pure logical function all_equal(numbers, expected)
    integer(int64), intent(in) :: numbers(:), expected
    integer :: i
    all_equal = .true.
    do i = 1, size(numbers)
      all_equal = all_equal .and. numbers(i) == expected
    end do
  end function all_equal

  subroutine check(good, what, detail)
    logical, intent(in) :: good
    character(*), intent(in) :: what
    integer, intent(in) :: detail
    checks = checks + 1
    if (.not. good) then
      wrong = wrong + 1
      write (error_unit, '(a, i0, 3a, i0, a)') "coarray_check: image ", this_image(), ": ", what, &
        " (", detail, ") is wrong"
    end if
  end subroutine check
end program coarray_check
