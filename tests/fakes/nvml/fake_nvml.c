// A stand-in for libnvidia-ml.so.1: answers from the scene file named by $FAKE_NVML, read anew at every call,
// so that a test changes the machine between two samples. One fact per line:
//
//     init CODE                     what nvmlInit answers
//     needs_init N                  every call on a card answers UNINITIALIZED until the Nth nvmlInit
//     gpu INDEX UUID NAME total=B reserved=B used=B ret=CODE mem_ret=CODE v2=CODE
//                                   NAME with _ for blanks; ret is every call's answer, mem_ret that of the memory
//                                   calls, v2 that of the second version of the memory call
//     proc GPU LIST PID BYTES       LIST is C (compute) or G (graphics); BYTES may be NA
//
// Structures and codes as in nvml.h.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GPUS 8
#define MAX_PROCESSES 256
#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define DRIVER_NOT_LOADED 9
#define GPU_IS_LOST 15
#define ARGUMENT_VERSION_MISMATCH 25
#define MEMORY_V2_VERSION 0x2000028

typedef unsigned long long bytes_t;

typedef struct {
    char uuid[96], name[96];
    bytes_t total, reserved, used;
    int ret, mem_ret, v2;
} gpu_t;

typedef struct {
    int gpu;
    char list;
    unsigned pid;
    bytes_t used;
} process_t;

typedef struct {
    unsigned pid;
    bytes_t used;
    unsigned gpu_instance, compute_instance;
} process_info_t;

typedef struct {
    bytes_t total, free, used;
} memory_t;

typedef struct {
    unsigned version;
    bytes_t total, reserved, free, used;
} memory_v2_t;

static gpu_t gpus[MAX_GPUS];
static process_t processes[MAX_PROCESSES];
static int num_gpus, num_processes, init_code, needs_init;
static int num_inits, num_shutdowns;

static void read_gpu(const char *line) {
    int index;
    gpu_t *gpu = &gpus[num_gpus];
    memset(gpu, 0, sizeof *gpu);
    if (sscanf(line, "gpu %d %95s %95s total=%llu reserved=%llu used=%llu ret=%d mem_ret=%d v2=%d", &index, gpu->uuid,
               gpu->name, &gpu->total, &gpu->reserved, &gpu->used, &gpu->ret, &gpu->mem_ret, &gpu->v2) == 9)
        num_gpus++;
}

static void read_process(const char *line) {
    char used[32];
    process_t *process = &processes[num_processes];
    if (sscanf(line, "proc %d %c %u %31s", &process->gpu, &process->list, &process->pid, used) != 4) return;
    process->used = strcmp(used, "NA") ? strtoull(used, NULL, 10) : ~0ULL;
    num_processes++;
}

static void read_scene(void) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    num_gpus = num_processes = init_code = needs_init = 0;
    if (!file) {
        init_code = DRIVER_NOT_LOADED;
        return;
    }
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "init %d", &init_code);
        sscanf(line, "needs_init %d", &needs_init);
        if (!strncmp(line, "gpu ", 4) && num_gpus < MAX_GPUS) read_gpu(line);
        if (!strncmp(line, "proc ", 5) && num_processes < MAX_PROCESSES) read_process(line);
    }
    fclose(file);
}

static int device_index(void *device) { return (int)((long)device - 1); }

static int check(void *device) {
    read_scene();
    if (num_inits < needs_init) return UNINITIALIZED;
    int index = device_index(device);
    if (index < 0 || index >= num_gpus) return INVALID_ARGUMENT;
    return gpus[index].ret;
}

// What the tests ask about the caller's manners.
int fakeInits(void) { return num_inits; }
int fakeShutdowns(void) { return num_shutdowns; }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    read_scene();
    if (init_code == SUCCESS) num_inits++;
    return init_code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    num_shutdowns++;
    return SUCCESS;
}

const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "fake error"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    read_scene();
    *count = num_gpus;
    return num_inits < needs_init ? UNINITIALIZED : SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return check(*device);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    read_scene();
    if (num_inits < needs_init) return UNINITIALIZED;
    for (int i = 0; i < num_gpus; i++)
        if (!strcmp(gpus[i].uuid, uuid)) {
            *device = (void *)(long)(i + 1);
            return gpus[i].ret;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    int code = check(device);
    if (code) return code;
    snprintf(name, length, "%s", gpus[device_index(device)].name);
    for (char *c = name; *c; c++)
        if (*c == '_') *c = ' ';
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    int code = check(device);
    if (code) return code;
    snprintf(uuid, length, "%s", gpus[device_index(device)].uuid);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    int code = check(device);
    if (code) return code;
    gpu_t *gpu = &gpus[device_index(device)];
    if (gpu->mem_ret) return gpu->mem_ret;
    memory->total = gpu->total;
    memory->used = gpu->used + gpu->reserved;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2_t *memory) {
    int code = check(device);
    if (code) return code;
    gpu_t *gpu = &gpus[device_index(device)];
    if (memory->version != MEMORY_V2_VERSION) return ARGUMENT_VERSION_MISMATCH;
    if (gpu->v2) return gpu->v2;
    if (gpu->mem_ret) return gpu->mem_ret;
    memory->total = gpu->total;
    memory->reserved = gpu->reserved;
    memory->used = gpu->used;
    memory->free = gpu->total - gpu->used - gpu->reserved;
    return SUCCESS;
}

static int list(void *device, unsigned *count, process_info_t *rows, char which) {
    int code = check(device);
    if (code) return code;
    unsigned found = 0;
    for (int i = 0; i < num_processes; i++)
        if (processes[i].gpu == device_index(device) && processes[i].list == which) {
            if (rows && found < *count)
                rows[found] = (process_info_t){processes[i].pid, processes[i].used, 0xFFFFFFFFu, 0xFFFFFFFFu};
            found++;
        }
    code = found && (!rows || found > *count) ? INSUFFICIENT_SIZE : SUCCESS;
    *count = found;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_info_t *rows) {
    return list(device, count, rows, 'C');
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process_info_t *rows) {
    return list(device, count, rows, 'G');
}
