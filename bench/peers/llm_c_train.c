// Trains with llm.c on the CPU and prints the time of each step as one JSON document. Built and started by
// bench/peers.py (--llm_c), with the folder of llm.c on the include path: its train_gpt2.c, without main().
//
//     llm_c_train CHECKPOINT ROWS BATCH LENGTH STEPS RATE BETA1 BETA2 EPSILON DECAY
//
// ROWS holds STEPS * BATCH rows of LENGTH + 1 ids, int32. llm.c decays every parameter and clips no gradient, which is
// less work than the others have.
#define TESTING
#include "train_gpt2.c"

int main(int argc, char** argv) {
  if (argc != 11) {
    fprintf(stderr, "llm_c_train: 10 arguments expected\n");
    return 2;
  }
  const int batch = atoi(argv[3]), length = atoi(argv[4]), steps = atoi(argv[5]);
  const float rate = (float)atof(argv[6]), beta1 = (float)atof(argv[7]), beta2 = (float)atof(argv[8]);
  const float epsilon = (float)atof(argv[9]), decay = (float)atof(argv[10]);
  const size_t width = (size_t)length + 1, rows = (size_t)batch;

  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);  // prints what it reads
  int* ids = mallocCheck(rows * width * sizeof(int));
  int* inputs = mallocCheck(rows * (size_t)length * sizeof(int));
  int* targets = mallocCheck(rows * (size_t)length * sizeof(int));
  double* seconds = mallocCheck((size_t)steps * sizeof(double));
  double* losses = mallocCheck((size_t)steps * sizeof(double));
  FILE* file = fopenCheck(argv[2], "rb");
  for (int step = 0; step < steps; step++) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    freadCheck(ids, sizeof(int), rows * width, file);
    for (size_t row = 0; row < rows; row++) {
      memcpy(inputs + row * (size_t)length, ids + row * width, (size_t)length * sizeof(int));
      memcpy(targets + row * (size_t)length, ids + row * width + 1, (size_t)length * sizeof(int));
    }
    gpt2_forward(&model, inputs, targets, rows, (size_t)length);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, rate, beta1, beta2, epsilon, decay, step + 1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    seconds[step] = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    losses[step] = model.mean_loss;
  }
  fcloseCheck(file);

  // Rows of the embedding that only fill the vocabulary up are no parameters.
  const GPT2Config config = model.config;
  const size_t padding = (size_t)(config.padded_vocab_size - config.vocab_size) * (size_t)config.channels;
  printf("\n{\"num_parameters\": %zu, \"seconds\": [", model.num_parameters - padding);
  for (int step = 0; step < steps; step++) printf("%s%.9f", step > 0 ? ", " : "", seconds[step]);
  printf("], \"losses\": [");
  for (int step = 0; step < steps; step++) printf("%s%.9f", step > 0 ? ", " : "", losses[step]);
  printf("]}\n");
  return 0;
}
