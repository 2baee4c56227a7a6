#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "formats/safetensors.h"
#include "train/run_setup.h"

/// A model whose embedding, and head where it is untied, have other rows than its files.
namespace heddle {

/// Gives the model's config `vocab_size` rows. Its weights, when they are opened, then have as many: rows that the
/// files have stay as they are, and a new one is the mean of all of them (Hewitt 2021, as transformers'
/// resize_token_embeddings with mean_resizing draws it, but for the noise of 1e-9 of their covariance).
void resize_vocabulary(ModelSource& model, std::int64_t vocab_size);

/// Wraps the files of such a model.
std::unique_ptr<WeightFiles> resized_weights(std::unique_ptr<WeightFiles> files, const ModelSource& model);

/// The model with `tie_word_embeddings: false`.
ModelSource untied(ModelSource model);

/// Gives the head of a model that ties it to the embedding a weight of its own: the same values by its own name.
std::unique_ptr<WeightFiles> untied_weights(std::unique_ptr<WeightFiles> files, const ModelConfig& model);

/// Rows of the embedding or the head that an adapter's folder holds, whole or in its factors; 0 where it holds neither.
std::int64_t vocabulary_of_adapter(const std::filesystem::path& folder, const ModelConfig& model);

}  // namespace heddle
