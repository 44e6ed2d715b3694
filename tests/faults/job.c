/* A job that a recorder is loaded into, as the driver of a GPU does it: job STEPS [WHAT HAPPENS].
 *
 * It prints what it has computed and ends with status 42, with a recorder or without one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*initialize)(void);
static void (*begin_step)(long long), (*begin_phase)(const char *, size_t), (*end)(void);
/* A file that the job writes itself. */
static FILE *own;

static void load(void) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    if (!library) return;
    initialize = (int (*)(void))dlsym(library, "InitializeInjection");
    begin_step = (void (*)(long long))dlsym(library, "stepscope_program_begin_step");
    begin_phase = (void (*)(const char *, size_t))dlsym(library, "stepscope_program_begin_phase");
    end = (void (*)(void))dlsym(library, "stepscope_program_end");
}

static unsigned long long step(long number, unsigned long long sum) {
    if (begin_step) begin_step(number), begin_phase("forward", 7);
    for (int i = 0; i < 1000; i++) sum = sum * 6364136223846793005ull + number + i;
    if (end) end(), end();
    if (own) fprintf(own, "%ld\n", number), fflush(own);
    usleep(2000);
    return sum;
}

static void must(int is_so, const char *what) {
    if (is_so) return;
    perror(what);
    exit(77);
}

/* Children that live for a moment. */
static void bomb(int children, int all_use_cuda) {
    for (int i = 0; i < children; i++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (!child) {
            if (all_use_cuda && initialize) initialize(), step(0, 0), exit(0);
            if (i % 3 == 0) execl("/bin/true", "true", NULL);
            if (i % 3 == 1) step(0, 0), exit(0);
            _exit(0);
        }
        /* Some are there at once. */
        if (i % 50 == 49) while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
    while (waitpid(-1, NULL, 0) > 0) {}
}

static void no_more_files(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
    must(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), "seccomp");
}

static void happen(const char *what) {
    if (!strcmp(what, "chroot")) {
        must(!mkdir("elsewhere", 0700) && !chroot("elsewhere") && !chdir("/"), what);
    } else if (!strcmp(what, "setns")) {
        int back = open("/proc/self/ns/mnt", O_RDONLY);
        must(!unshare(CLONE_NEWNS | CLONE_NEWUTS) && !sethostname("elsewhere", 9) && !setns(back, CLONE_NEWNS), what);
    } else if (!strcmp(what, "prctl")) {
        must(!prctl(PR_SET_NAME, "somebody else", 0, 0, 0) && !prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
            && !prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) && !prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0), what);
    } else if (!strcmp(what, "sandbox")) {
        no_more_files();
    } else if (!strcmp(what, "use-descriptors")) {
        while (dup(1) >= 0) {}
    } else if (!strcmp(what, "close-descriptors")) {
        for (int fd = 3; fd < 1024; fd++) close(fd);
        /* Whoever still writes to one of those would write here. */
        for (int i = 0; i < 64; i++) must((own = fopen("own", "w")) != NULL, what);
    } else if (!strcmp(what, "use-memory")) {
        for (;;) memset(malloc(1 << 20), 1, 1 << 20);
    } else if (!strcmp(what, "fork-bomb")) {
        bomb(300, 0);
    } else if (!strcmp(what, "exec")) {
        execl("/proc/self/exe", "job", "40", "nothing", NULL);
    } else {
        must(!strcmp(what, "nothing"), what);
    }
}

int main(int count, char **words) {
    long steps = count > 1 ? atol(words[1]) : 100;
    const char *what = count > 2 ? words[2] : "nothing";
    unsigned long long sum = 1;
    load();
    if (!strcmp(what, "ranks")) {
        bomb(steps, 1);
        printf("ranks %ld\n", steps);
        return 42;
    }
    if (!strcmp(what, "use-descriptors-first")) {
        while (dup(1) >= 0) {}
        what = "nothing";
    }
    if (initialize) initialize();
    for (long number = 0; number < steps; number++) {
        if (number == steps / 2) happen(what);
        sum = step(number, sum);
    }
    printf("sum %llu\n", sum);
    if (own) {
        /* What it has written is there, and nothing else. */
        long expected = steps / 2, found;
        FILE *again = fopen("own", "r");
        while (again && fscanf(again, "%ld", &found) == 1) must(found == expected++, "own");
        must(again && feof(again) && expected == steps, "own");
    }
    return 42;
}
