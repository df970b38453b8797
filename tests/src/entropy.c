/* Preloaded into a process, it makes what the process draws from the kernel's random source the same in every process, for as long
 * as a file is missing: as if all of them were clones of one snapshot, which is restored when the file appears. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Of each thread: the threads of two processes take turns differently. */
static __thread uint64_t drawn;

static uint64_t next(void)
{
    /* SplitMix64. */
    uint64_t z = (drawn += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
    const char *restored = getenv("TEST_RESTORED");
    if (restored == NULL || access(restored, F_OK) == 0)
        return syscall(SYS_getrandom, buffer, length, flags);
    for (size_t done = 0; done < length; done += sizeof(uint64_t)) {
        uint64_t word = next();
        size_t left = length - done;
        memcpy((char *)buffer + done, &word, left < sizeof word ? left : sizeof word);
    }
    return (ssize_t)length;
}
