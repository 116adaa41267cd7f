/* What a kernel that TVM compiled needs while it runs, on top of libc and POSIX threads alone.
 *
 * The generated file of a kernel defines TT_THREADS (how many threads it was tuned for) and
 * TT_ALIGNMENT (what its arrays are aligned to), includes this one, and calls tt_call. Nothing here
 * is visible outside the shared library, so any number of them can be loaded into one process.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Errors ----------------------------------------------------------------------------------- */

static _Thread_local char tt_message[512];

static int tt_fail(const char *message) {
  snprintf(tt_message, sizeof tt_message, "%s", message);
  return -1;
}

/* Called by a kernel whose assertion fails. */
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  size_t used = (size_t)snprintf(tt_message, sizeof tt_message, "%s: ", kind);
  for (int32_t i = 0; i < count && used < sizeof tt_message; ++i) {
    if (parts[i] != NULL) {
      used += (size_t)snprintf(tt_message + used, sizeof tt_message - used, "%s", parts[i]);
    }
  }
}

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1);
}

/* --- Scratch memory --------------------------------------------------------------------------- */

/* Each thread keeps the blocks that its kernels gave back: fresh ones of a megabyte would cost a
 * page fault for every 4 kB, in every call. */
#define TT_BLOCKS 16

typedef struct {
  void *data;
  size_t size;
  int used;
} tt_block;

static pthread_once_t tt_once = PTHREAD_ONCE_INIT;
static pthread_key_t tt_key;
static int tt_has_key;

static void tt_release(void *blocks) {
  for (int i = 0; i < TT_BLOCKS; ++i) {
    free(((tt_block *)blocks)[i].data);
  }
  free(blocks);
}

static void tt_make_key(void) { tt_has_key = pthread_key_create(&tt_key, tt_release) == 0; }

static tt_block *tt_blocks(void) {
  pthread_once(&tt_once, tt_make_key);
  if (!tt_has_key) {
    return NULL;
  }
  tt_block *blocks = pthread_getspecific(tt_key);
  if (blocks == NULL && (blocks = calloc(TT_BLOCKS, sizeof *blocks)) != NULL &&
      pthread_setspecific(tt_key, blocks) != 0) {
    free(blocks);
    blocks = NULL;
  }
  return blocks;
}

static void *tt_fresh(size_t size) {
  void *data = NULL;
  if (posix_memalign(&data, TT_ALIGNMENT < 128 ? 128 : TT_ALIGNMENT, size ? size : 1) != 0) {
    tt_fail("out of memory");
    return NULL;
  }
  return data;
}

static void *tt_allocate(size_t size) {
  tt_block *blocks = tt_blocks(), *fits = NULL, *spare = NULL;
  for (int i = 0; blocks != NULL && i < TT_BLOCKS; ++i) {
    tt_block *block = &blocks[i];
    if (block->used) {
      continue;
    }
    if (block->data != NULL && block->size >= size && (fits == NULL || block->size < fits->size)) {
      fits = block;
    }
    if (spare == NULL || block->size < spare->size) {
      spare = block; /* an empty one, or the smallest of those too small */
    }
  }
  if (fits == NULL) {
    if (spare == NULL) {
      return tt_fresh(size);
    }
    free(spare->data);
    spare->data = tt_fresh(size);
    spare->size = spare->data != NULL ? size : 0;
    fits = spare;
  }
  fits->used = fits->data != NULL;
  return fits->data;
}

static void tt_give_back(void *data) {
  tt_block *blocks = tt_blocks();
  for (int i = 0; blocks != NULL && i < TT_BLOCKS; ++i) {
    if (blocks[i].used && blocks[i].data == data) {
      blocks[i].used = 0;
      return;
    }
  }
  free(data);
}

static void *tt_alloc_workspace(int device, int id, uint64_t size, int code, int bits) {
  (void)device, (void)id, (void)code, (void)bits;
  return tt_allocate((size_t)size);
}

static int tt_free_workspace(int device, int id, void *data) {
  (void)device, (void)id;
  tt_give_back(data);
  return 0;
}

/* --- Parallel loops --------------------------------------------------------------------------- */

#include "threads.c"

/* Runs when the library is unloaded and when the process ends. */
__attribute__((destructor)) static void tt_finish(void) {
  tt_stop_threads();
  if (tt_has_key) {
    void *blocks = pthread_getspecific(tt_key);
    pthread_key_delete(tt_key); /* its destructor is about to be unmapped */
    tt_has_key = 0;
    if (blocks != NULL) {
      tt_release(blocks);
    }
  }
}

/* --- Calling the kernel ----------------------------------------------------------------------- */

/* A kernel finds these through pointers of its own, which are weak and null: ours take over. */
int (*__TVMBackendParallelLaunch)(tt_body, void *, int) = tt_launch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = tt_alloc_workspace;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = tt_free_workspace;

/* DLPack's DLTensor, on the CPU. */
typedef struct {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
} tt_tensor;

/* TVM's tagged value; the tag says that it points to a tensor. */
typedef struct {
  int32_t tag;
  uint32_t padding;
  union {
    void *pointer;
    int64_t bits;
  } value;
} tt_any;

enum { TT_CPU = 1, TT_TENSOR_POINTER = 7 };
enum { TT_READ = 1, TT_WRITTEN = 2 };

typedef struct {
  const char *name;
  size_t bytes;
  int access;
  uint8_t code, bits;
  int32_t ndim;
  const int64_t *shape, *strides;
} tt_argument;

extern int __tvm_ffi_main(void *self, const tt_any *arguments, int32_t count, tt_any *result);

static int tt_bind(const tt_argument *argument, void *data, tt_tensor *tensor) {
  if (data == NULL) {
    snprintf(tt_message, sizeof tt_message, "%s is NULL", argument->name);
    return -1;
  }
  /* The kernel loads whole vectors from where alignment makes that legal, and would crash. */
  if ((uintptr_t)data % TT_ALIGNMENT != 0) {
    void *copy = tt_allocate(argument->bytes);
    if (copy == NULL) {
      return -1;
    }
    if (argument->access & TT_READ) {
      memcpy(copy, data, argument->bytes);
    }
    data = copy;
  }
  *tensor = (tt_tensor){data,           TT_CPU,        0, argument->ndim,
                        argument->code, argument->bits, 1, argument->shape,
                        argument->strides, 0};
  return 0;
}

static int tt_call(const tt_argument *arguments, void *const *data, int count) {
  tt_tensor tensors[count];
  tt_any values[count], result = {0};
  int bound = 0, code = 0;
  tt_message[0] = '\0';
  while (bound < count && (code = tt_bind(&arguments[bound], data[bound], &tensors[bound])) == 0) {
    values[bound] = (tt_any){TT_TENSOR_POINTER, 0, {&tensors[bound]}};
    ++bound;
  }
  if (code == 0) {
    code = __tvm_ffi_main(NULL, values, count, &result);
  }
  for (int i = 0; i < bound; ++i) {
    if (tensors[i].data != data[i]) {
      if (code == 0 && arguments[i].access & TT_WRITTEN) {
        memcpy(data[i], tensors[i].data, arguments[i].bytes);
      }
      tt_give_back(tensors[i].data);
    }
  }
  if (code != 0 && tt_message[0] == '\0') {
    snprintf(tt_message, sizeof tt_message, "the kernel returned %d", code);
  }
  return code ? -1 : 0;
}
