#pragma once

#include <string>

namespace heddle {

/// What one process does under mpirun; returns its exit code. Scenes are listed in mpi_scenes.cpp.
int run_scene(const std::string& name, const std::string& output);

}  // namespace heddle
