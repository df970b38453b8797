/* Preloaded into a process, it lets a test take time off the clocks that the process reads: as if they had stood still.
 *
 * Not every reader goes through the C library: some call the kernel's own code for it, the vDSO, directly. So that code
 * itself is patched, in this process's private copy, to jump here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

/* Nanoseconds taken off: of CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME. The test writes them. */
static volatile int64_t *taken_off;

static long from_kernel(clockid_t clock, struct timespec *time) {
#if defined(__x86_64__)
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_clock_gettime), "D"(clock), "S"(time) : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long number __asm__("x8") = SYS_clock_gettime;
	register long first __asm__("x0") = clock;
	register struct timespec *second __asm__("x1") = time;
	__asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second) : "memory");
	return first;
#endif
}

static int clock_told(clockid_t clock, struct timespec *time) {
	long result = from_kernel(clock, time);
	int which = clock == CLOCK_BOOTTIME ? 0 : clock == CLOCK_MONOTONIC ? 1 : clock == CLOCK_REALTIME ? 2 : -1;
	if (result == 0 && which >= 0) {
		int64_t nanoseconds = time->tv_sec * SECOND + time->tv_nsec - taken_off[which];
		time->tv_sec = nanoseconds / SECOND;
		time->tv_nsec = nanoseconds % SECOND;
	}
	return (int)result;
}

static int day_told(struct timeval *time, struct timezone *zone) {
	struct timespec now;
	clock_told(CLOCK_REALTIME, &now);
	if (time) *time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
	if (zone) *zone = (struct timezone){0};
	return 0;
}

static void fail(const char *what) {
	fprintf(stderr, "clocks: %s\n", what);
	abort();
}

static void map(void) {
	const char *path = getenv("TEST_CLOCKS");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *mapped = mmap(NULL, 3 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	if (mapped == MAP_FAILED) fail("TEST_CLOCKS names no file with three numbers");
	close(file);
	taken_off = mapped;
}

/* The mapping that holds this address. */
static void find(void *address, uintptr_t *start, uintptr_t *end) {
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	while (maps && fgets(line, sizeof line, maps)) {
		int read = sscanf(line, "%" SCNxPTR "-%" SCNxPTR, start, end);
		if (read == 2 && *start <= (uintptr_t)address && (uintptr_t)address < *end) {
			fclose(maps);
			return;
		}
	}
	fail("the vDSO is not mapped");
}

/* From now on the vDSO's function of this name is `target`. */
static void divert(void *vdso, const char *name, void *target) {
#if defined(__x86_64__)
	/* mov target, %r11; jmp *%r11 */
	unsigned char jump[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
	const int address = 2;
#elif defined(__aarch64__)
	/* ldr x16, target; br x16 */
	unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0};
	const int address = 8;
#endif
	memcpy(jump + address, &target, sizeof target);
	unsigned char *entry = vdso ? dlsym(vdso, name) : NULL;
	if (!entry) fail("the vDSO has no such function");
	/* The kernel changes the protection of this mapping as a whole only. */
	uintptr_t start, end;
	find(entry, &start, &end);
	if (mprotect((void *)start, end - start, PROT_READ | PROT_WRITE | PROT_EXEC)) fail("the vDSO cannot be written");
	memcpy(entry, jump, sizeof jump);
	if (mprotect((void *)start, end - start, PROT_READ | PROT_EXEC)) fail("the vDSO cannot be protected again");
	__builtin___clear_cache((char *)entry, (char *)entry + sizeof jump);
}

__attribute__((constructor)) static void patch(void) {
	map();
	void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
#if defined(__x86_64__)
	divert(vdso, "__vdso_clock_gettime", (void *)clock_told);
	divert(vdso, "__vdso_gettimeofday", (void *)day_told);
#elif defined(__aarch64__)
	divert(vdso, "__kernel_clock_gettime", (void *)clock_told);
	divert(vdso, "__kernel_gettimeofday", (void *)day_told);
#endif
}
