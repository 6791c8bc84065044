// Importance weights of tokens: old probability over rollout probability, bounded or masked.
#include "token_loss.cuh"

// The weight that each token's loss would be multiplied with; 0 for tokens that are not read.
extern "C" __global__ void importance_weights(const RowStats* stats, const Token* tokens,
                                              const SequenceTerm* terms, Loss loss, int rows,
                                              float* weights) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    const Token token = tokens[i];
    const SequenceTerm term =
        terms != nullptr ? terms[i] : own_term(loss, token, stats[i].log_prob);
    weights[i] = token.weight == 0.0f ? 0.0f : term.importance;
}
