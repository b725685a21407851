// Kernels with one fault each, and the same without it: counters of them are in ncu_faults.csv.gz (ncu_faults.py runs them).
extern "C" __global__ void transpose_conflicts(const float* x, float* y, int n) {  // fault: 32-way bank conflicts
  __shared__ float t[32][32]; int bx = blockIdx.x*32, by = blockIdx.y*32;
  for (int j = threadIdx.y; j < 32; j += 8) t[j][threadIdx.x] = x[(size_t)(by+j)*n + bx + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8) y[(size_t)(bx+j)*n + by + threadIdx.x] = t[threadIdx.x][j];
}
extern "C" __global__ void transpose_padded(const float* x, float* y, int n) {
  __shared__ float t[32][33]; int bx = blockIdx.x*32, by = blockIdx.y*32;
  for (int j = threadIdx.y; j < 32; j += 8) t[j][threadIdx.x] = x[(size_t)(by+j)*n + bx + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8) y[(size_t)(bx+j)*n + by + threadIdx.x] = t[threadIdx.x][j];
}
extern "C" __global__ void shared_conflicts(float* y, int n) {  // fault: every access to shared memory takes 32 passes
  __shared__ float t[32*32]; int k = threadIdx.x & 31; float a = 0;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) t[i] = i;
  __syncthreads();
  for (int r = 0; r < n; r++) a += t[k*32 + ((r + k*0) & 31)];
  y[blockIdx.x*blockDim.x + threadIdx.x] = a;
}
extern "C" __global__ void shared_plain(float* y, int n) {
  __shared__ float t[32*32]; int k = threadIdx.x & 31; float a = 0;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) t[i] = i;
  __syncthreads();
  for (int r = 0; r < n; r++) a += t[(r & 31)*32 + k];
  y[blockIdx.x*blockDim.x + threadIdx.x] = a;
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilled(const float* x, float* y, int n) {  // fault: more values than registers
  float v[96]; int i = blockIdx.x*blockDim.x + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < 96; k++) v[k] = x[(i + k*4099) & (n-1)];
  for (int r = 0; r < 4; r++) {
    #pragma unroll
    for (int k = 0; k < 96; k++) v[k] = v[k]*v[(k*7+3)%96] + v[(k*5+1)%96];
  }
  float a = 0;
  #pragma unroll
  for (int k = 0; k < 96; k++) a += v[k];
  y[i] = a;
}
extern "C" __global__ void __launch_bounds__(256) unspilled(const float* x, float* y, int n) {
  float v[96]; int i = blockIdx.x*blockDim.x + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < 96; k++) v[k] = x[(i + k*4099) & (n-1)];
  for (int r = 0; r < 4; r++) {
    #pragma unroll
    for (int k = 0; k < 96; k++) v[k] = v[k]*v[(k*7+3)%96] + v[(k*5+1)%96];
  }
  float a = 0;
  #pragma unroll
  for (int k = 0; k < 96; k++) a += v[k];
  y[i] = a;
}
extern "C" __global__ void dynamic_array(const float* x, float* y, int n) {  // fault: an array indexed at run time lies in local memory
  float v[64]; int i = blockIdx.x*blockDim.x + threadIdx.x;
  for (int k = 0; k < 64; k++) v[k] = x[(i + k*4099) & (n-1)];
  int j = (int)x[i & (n-1)] & 63; float a = 0;
  for (int r = 0; r < 256; r++) { a += v[j]; j = (j*5 + 1 + (int)a) & 63; v[(j+r)&63] = a*0.5f; }
  y[i] = a;
}
extern "C" __global__ void few_warps(const float4* x, float4* y, int n) {  // with large dynamic shared memory: one small block per SM
  extern __shared__ float s[]; if (n < 0) s[threadIdx.x] = 1;
  for (int i = blockIdx.x*blockDim.x + threadIdx.x; i < n; i += gridDim.x*blockDim.x) { float4 v = x[i]; v.x += 1; v.y += 1; v.z += 1; v.w += 1; y[i] = v; }
}
extern "C" __global__ void divergent(const int* c, float* y, int n) {  // fault: lanes of a warp loop differently long
  int i = blockIdx.x*blockDim.x + threadIdx.x; float a = i;
  int m = c[i];
  for (int r = 0; r < m; r++) a = a*1.0001f + 0.5f;
  y[i] = a;
}
extern "C" __global__ void two_waves(float* y, int n) {  // with 133 blocks: the last runs alone
  extern __shared__ float s[]; if (n < 0) s[threadIdx.x] = 1;
  float a = threadIdx.x; for (int r = 0; r < n; r++) a = a*1.0001f + 0.5f;
  y[blockIdx.x*blockDim.x + threadIdx.x] = a;
}
extern "C" __global__ void narrow(const unsigned char* x, unsigned char* y, long n) {  // fault: a byte per thread
  long i = (long)blockIdx.x*blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] + 1;
}
extern "C" __global__ void wide(const uint4* x, uint4* y, long n) {
  long i = (long)blockIdx.x*blockDim.x + threadIdx.x; if (i < n) { uint4 v = x[i]; v.x += 0x01010101u; v.y += 0x01010101u; v.z += 0x01010101u; v.w += 0x01010101u; y[i] = v; }
}
extern "C" __global__ void hist_global(const int* x, int* h, int n) {  // fault: atomics of all threads on 8 addresses
  int i = blockIdx.x*blockDim.x + threadIdx.x; if (i < n) atomicAdd(h + (x[i] & 7), 1);
}
extern "C" __global__ void hist_shared(const int* x, int* h, int n) {
  __shared__ int t[8*32]; for (int k = threadIdx.x; k < 256; k += blockDim.x) t[k] = 0; __syncthreads();
  for (int i = blockIdx.x*blockDim.x + threadIdx.x; i < n; i += gridDim.x*blockDim.x) atomicAdd(t + (x[i] & 7)*32 + (threadIdx.x & 31), 1);
  __syncthreads(); if (threadIdx.x < 8) { int a = 0; for (int k = 0; k < 32; k++) a += t[threadIdx.x*32 + k]; atomicAdd(h + threadIdx.x, a); }
}
extern "C" __global__ void sum_atomics(const float* x, float* s, int n) {  // fault: one atomic per element on one address
  int i = blockIdx.x*blockDim.x + threadIdx.x; if (i < n) atomicAdd(s, x[i]);
}
extern "C" __global__ void structs(const float* x, float* y, int n) {  // fault: array of structs of 8 floats, one field used
  int i = blockIdx.x*blockDim.x + threadIdx.x; y[i] = x[(size_t)i*8] * 2.0f;
}
extern "C" __global__ void fields(const float* x, float* y, int n) {
  int i = blockIdx.x*blockDim.x + threadIdx.x; y[i] = x[i] * 2.0f;
}
extern "C" __global__ void uneven(const int* c, float* y, int n) {  // fault: one block has most of the work
  float a = threadIdx.x; int m = blockIdx.x == 0 ? n*40 : n; for (int r = 0; r < m; r++) a = a*1.0001f + 0.5f;
  y[blockIdx.x*blockDim.x + threadIdx.x] = a;
}
extern "C" __global__ void doubles(const float* x, float* y, int n) {  // fault: a constant makes the arithmetic double
  int i = blockIdx.x*blockDim.x + threadIdx.x; float v = x[i]; for (int r = 0; r < 64; r++) v = v*1.0001 + 0.5; y[i] = v;
}
extern "C" __global__ void floats(const float* x, float* y, int n) {
  int i = blockIdx.x*blockDim.x + threadIdx.x; float v = x[i]; for (int r = 0; r < 64; r++) v = v*1.0001f + 0.5f; y[i] = v;
}
extern "C" __global__ void slow_math(const float* x, float* y, int n) {  // fault: precise division and sine
  int i = blockIdx.x*blockDim.x + threadIdx.x; float v = x[i]; for (int r = 0; r < 16; r++) v = sinf(v*100000.f) / (v + 2.0f); y[i] = v;
}
