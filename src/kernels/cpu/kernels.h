#pragma once

#include "ops/kernel.h"

/// CPU kernels, one function for each operation of ops/operations.md, each in a file of its name (or its forward's).
namespace heddle::cpu {

void embedding(const KernelCall& call);
void embedding_backward(const KernelCall& call);
void neftune(const KernelCall& call);
void linear(const KernelCall& call);
void linear_group(const KernelCall& call);
void linear_backward_input(const KernelCall& call);
void linear_backward_weight(const KernelCall& call);
void rms_norm(const KernelCall& call);
void rms_norm_backward(const KernelCall& call);
void layer_norm(const KernelCall& call);
void layer_norm_backward(const KernelCall& call);
void rope_table(const KernelCall& call);
void rope(const KernelCall& call);
void rope_backward(const KernelCall& call);
void attention(const KernelCall& call);
void attention_backward(const KernelCall& call);
void glu(const KernelCall& call);
void glu_backward(const KernelCall& call);
void activation(const KernelCall& call);
void activation_backward(const KernelCall& call);
void add(const KernelCall& call);
void scale(const KernelCall& call);
void softcap(const KernelCall& call);
void dropout(const KernelCall& call);
void split(const KernelCall& call);
void concat(const KernelCall& call);
void linear_cross_entropy(const KernelCall& call);
void linear_cross_entropy_gradient(const KernelCall& call);
void linear_log_probs(const KernelCall& call);
void linear_log_probs_backward(const KernelCall& call);
void preference_loss(const KernelCall& call);
void preference_loss_gradient(const KernelCall& call);
void dora_norm(const KernelCall& call);
void dora_scale(const KernelCall& call);
void dora_scale_backward(const KernelCall& call);
void select_last(const KernelCall& call);
void kv_append(const KernelCall& call);
void accumulate_gradient(const KernelCall& call);
void sum_of_squares(const KernelCall& call);
void gradient_norm(const KernelCall& call);
void adamw(const KernelCall& call);
void adamw_8bit(const KernelCall& call);
void lion(const KernelCall& call);
void sgd(const KernelCall& call);
void muon_momentum(const KernelCall& call);
void newton_schulz(const KernelCall& call);
void adafactor(const KernelCall& call);
void descend(const KernelCall& call);

}  // namespace heddle::cpu
