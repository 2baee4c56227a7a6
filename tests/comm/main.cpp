// The test program, and what it starts under mpirun: `test_comm --as-rank NAME OUTPUT` runs one rank of the scene NAME.
#include <gtest/gtest.h>

#include <string_view>

#include "mpi_scenes.h"

int main(int count, char** arguments) {
  if (count == 4 && std::string_view(arguments[1]) == "--as-rank") {
    return heddle::run_scene(arguments[2], arguments[3]);
  }
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
