/* A FAKE of NVIDIA's management library, written for isotherm's tests. It has one GPU, or as many as it is told, and says whatever the
 * file `nvml.conf` beside it says, which is read with every call: a line is `name value`, and `name` that of a function without its
 * version, or one of `init`, `gpus`, `processes`. A value of `!N` is the error N; `hang` never returns, `crash` ends the process.
 * Where there is a file `NAME.reads`, it grows by a byte with every call for that name.
 *
 * -DOLD makes one as old drivers have it: without the energy counter, and with the first version of the list of processes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SIZE = 7 };
typedef struct { int index; } Device;
static Device devices[8];

/* The text for a name; 0 if there is none. */
static const char *told(const char *name, char *buffer, size_t size) {
    Dl_info self;
    char path[4096];
    dladdr((void *)told, &self);
    snprintf(path, sizeof path, "%s", self.dli_fname);
    char *base = strrchr(path, '/');
    snprintf(base, 64, "/%s.reads", name);
    int reads = open(path, O_WRONLY | O_APPEND);
    if (reads >= 0) write(reads, ".", 1), close(reads);
    snprintf(base, 64, "/nvml.conf");
    FILE *file = fopen(path, "r");
    const char *found = 0;
    while (file && !found && fgets(buffer, size, file)) {
        char *space = strchr(buffer, ' ');
        buffer[strcspn(buffer, "\n")] = 0;
        if (space) {
            *space = 0;
            if (!strcmp(buffer, name)) found = space + 1;
        }
    }
    if (file) fclose(file);
    if (found && !strcmp(found, "hang")) for (;;) pause();
    if (found && !strcmp(found, "crash")) _exit(9);
    return found;
}

/* A number for a name, or this one; an error where it is told so. */
static int number(const char *name, long long otherwise, long long *value) {
    char buffer[4096];
    const char *text = told(name, buffer, sizeof buffer);
    if (text && *text == '!') return atoi(text + 1);
    *value = text ? atoll(text) : otherwise;
    return SUCCESS;
}

#define NUMBER(function, name, type, otherwise)             \
    int function(Device *device, type *out) {               \
        long long value;                                    \
        int code = number(name, otherwise, &value);         \
        if (code == SUCCESS) *out = (type)value;            \
        return code;                                        \
    }
#define TEXT(function, name, otherwise)                                   \
    int function(Device *device, char *out, unsigned size) {              \
        char buffer[4096];                                                \
        const char *text = told(name, buffer, sizeof buffer);             \
        if (text && *text == '!') return atoi(text + 1);                  \
        snprintf(out, size, text ? text : otherwise, device->index);      \
        return SUCCESS;                                                   \
    }

int nvmlInit_v2(void) {
    long long code;
    int error = number("init", 0, &code);
    return error;
}
const char *nvmlErrorString(int code) {
    return code == 3 ? "Not Supported" : code == 4 ? "Insufficient Permissions" : code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return snprintf(out, size, "999.01") < 0; }
int nvmlDeviceGetCount_v2(unsigned *out) {
    long long n;
    int code = number("gpus", 1, &n);
    *out = n;
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    if (index >= 8) return INVALID;
    devices[index].index = index;
    *out = &devices[index];
    return SUCCESS;
}
TEXT(nvmlDeviceGetName, "name", "Fake GPU")
TEXT(nvmlDeviceGetUUID, "uuid", "GPU-5b3c7f0%d-1111-2222-3333-444455556666")
NUMBER(nvmlDeviceGetPowerUsage, "power", unsigned, 15237)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit", unsigned, 250000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default", unsigned, 300000)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", unsigned, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", unsigned, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_generation", unsigned, 4)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width", unsigned, 16)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", unsigned, 1)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "reasons", unsigned long long, 0)
#ifndef OLD
/* A counter of `energy 10 W, 12 W polled` grows by 12 W between two calls of which one follows the other within 350 ms, and by 10 W else. */
int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *out) {
    static double counted, before;
    double rarely, polled;
    char buffer[4096];
    const char *text = told("energy", buffer, sizeof buffer);
    if (text && *text == '!') return atoi(text + 1);
    if (!text || sscanf(text, "%lf W, %lf W polled", &rarely, &polled) != 2) {
        *out = text ? atoll(text) : 1234567;
        return SUCCESS;
    }
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double now = time.tv_sec + time.tv_nsec / 1e9, passed = before ? now - before : 0;
    before = now;
    *out = counted += 1e3 * passed * (passed < 0.35 ? polled : rarely);
    return SUCCESS;
}
#endif
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *out) {
    long long value;
    int code = number("temperature", 55, &value);
    *out = value;
    return sensor ? INVALID : code;
}
int nvmlDeviceGetClockInfo(Device *device, int which, unsigned *out) {
    long long value;
    int code = number(which ? "memory_clock" : "graphics_clock", which ? 7000 : 1300, &value);
    *out = value;
    return code;
}
int nvmlDeviceGetUtilizationRates(Device *device, unsigned out[2]) {
    long long value;
    int code = number("busy", 0, &value);
    out[0] = value;
    out[1] = 1;
    return code;
}
int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long out[3]) {
    long long used;
    int code = number("memory_used", 512ll << 20, &used);
    out[0] = 8ull << 30;
    out[1] = out[0] - used;
    out[2] = used;
    return code;
}
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    *major = 8;
    *minor = 7;
    return SUCCESS;
}
int nvmlDeviceGetEccMode(Device *device, unsigned *current, unsigned *pending) {
    long long value;
    int code = number("ecc", 0, &value);
    *current = *pending = value;
    return code;
}

/* `processes 12:1048576,13:-`: pid and bytes of memory, `-` where the driver doesn't tell. */
static int list(unsigned *n, void (*put)(void *, unsigned, unsigned, unsigned long long), void *out) {
    char buffer[4096];
    const char *text = told("processes", buffer, sizeof buffer);
    if (text && *text == '!') return atoi(text + 1);
    unsigned room = *n, count = 0;
    for (char *rest = (char *)text; rest && *rest; count++) {
        unsigned pid = strtoul(rest, &rest, 10);
        rest += *rest == ':';
        unsigned long long used = *rest == '-' ? (rest++, ~0ull) : strtoull(rest, &rest, 10);
        rest += *rest == ',';
        if (count < room) put(out, count, pid, used);
    }
    *n = count;
    return count > room ? SIZE : SUCCESS;
}
#ifdef OLD
struct Info { unsigned pid; unsigned long long used; };
#define LIST nvmlDeviceGetComputeRunningProcesses
#else
struct Info { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
#define LIST nvmlDeviceGetComputeRunningProcesses_v3
#endif
static void put(void *out, unsigned at, unsigned pid, unsigned long long used) {
    struct Info *infos = out;
    infos[at].pid = pid;
    infos[at].used = used;
}
int LIST(Device *device, unsigned *n, struct Info *infos) { return list(n, put, infos); }
