// Kernels whose work is known, to hold counters to: what ncu_probe_*.csv.gz were captured from on an H200.
//
//     nvcc -O3 -arch=sm_90a -o probe ncu_probe.cu
//     ncu --clock-control none --set full --metrics … -o full ./probe      (then --import full.ncu-rep --csv --page raw, details, …)
//     ncu --clock-control none --set roofline -o roofline ./probe
//
// The files are cut to the columns that matter here.
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

__global__ void copy(const float* a, float* b, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i];
}
__global__ void readonly(const float4* a, float* o, size_t n, int times) {
  float s = 0;
  for (int t = 0; t < times; t++)
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x) {
      float4 v = __ldcg(a + i);
      s += v.x + v.y + v.z + v.w;
    }
  if (s == 1e-30f) *o = s;
}
__global__ void writeonly(float4* a, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
    a[i] = make_float4(1, 2, 3, 4);
}
__global__ void fma32(float* o, int k) {
  float x = threadIdx.x, y = blockIdx.x;
  for (int i = 0; i < k; i++) x = fmaf(x, 1.0001f, y);
  if (x == 1e-30f) *o = x;
}
__global__ void addmul32(float* o, int k) {
  float x = threadIdx.x, y = blockIdx.x;
  for (int i = 0; i < k; i++) {
    x = __fadd_rn(x, y);
    y = __fmul_rn(y, 1.0001f);
  }
  if (x == 1e-30f) *o = x + y;
}
__global__ void fma64(double* o, int k) {
  double x = threadIdx.x, y = blockIdx.x;
  for (int i = 0; i < k; i++) x = fma(x, 1.0001, y);
  if (x == 1e-30) *o = x;
}
__global__ void fma16(__half2* o, int k) {
  __half2 x = __float2half2_rn(threadIdx.x), y = __float2half2_rn(blockIdx.x);
  for (int i = 0; i < k; i++) x = __hfma2(x, y, y);
  if (__low2float(x) == 1e-30f) *o = x;
}
__global__ void fmabf16(__nv_bfloat162* o, int k) {
  __nv_bfloat162 x = __float2bfloat162_rn(threadIdx.x), y = __float2bfloat162_rn(blockIdx.x);
  for (int i = 0; i < k; i++) x = __hfma2(x, y, y);
  if (__low2float(x) == 1e-30f) *o = x;
}
__global__ void imad(int* o, int k) {
  int x = threadIdx.x, y = blockIdx.x;
  for (int i = 0; i < k; i++) x = x * x + y;
  if (x == 123456789) *o = x;
}
__global__ void sfu(float* o, int k) {
  float x = threadIdx.x * 1e-3f;
  for (int i = 0; i < k; i++) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  if (x == 1e-30f) *o = x;
}
__global__ void shared(float* o, int k) {
  __shared__ float s[1024];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  float x = 0;
  volatile float* v = s;
  for (int i = 0; i < k; i++) x += v[(threadIdx.x + i * 32) & 1023];
  if (x == 1e-30f) *o = x;
}
template <class T, class A, int M, int N, int K, class TA = T>
__global__ void mma(A* o, int k) {
  wmma::fragment<wmma::matrix_a, M, N, K, TA, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, M, N, K, TA, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, M, N, K, A> c;
  wmma::fill_fragment(a, (T)1);
  wmma::fill_fragment(b, (T)1);
  wmma::fill_fragment(c, (A)0);
  for (int i = 0; i < k; i++) wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(o + (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * M * N, c, N, wmma::mem_row_major);
}
int main() {
  float *a, *b;
  cudaMalloc(&a, 1 << 29);
  cudaMalloc(&b, 1 << 29);
  cudaMemset(a, 0, 1 << 29);
  size_t n = 1 << 26;  // 256 MiB of floats
  copy<<<n / 256, 256>>>(a, b, n);
  readonly<<<132 * 8, 256>>>((float4*)a, b, n / 4, 1);
  readonly<<<132 * 8, 256>>>((float4*)a, b, (1 << 22) / 4, 16);  // 16 MiB, from L2, 16 times
  writeonly<<<132 * 8, 256>>>((float4*)b, n / 4);
  fma32<<<1320, 256>>>(a, 1024);
  addmul32<<<1320, 256>>>(a, 1024);
  fma64<<<1320, 256>>>((double*)a, 1024);
  fma16<<<1320, 256>>>((__half2*)a, 1024);
  fmabf16<<<1320, 256>>>((__nv_bfloat162*)a, 1024);
  imad<<<1320, 256>>>((int*)a, 1024);
  sfu<<<1320, 256>>>(a, 1024);
  shared<<<1320, 1024>>>(a, 1024);
  mma<half, float, 16, 16, 16><<<1320, 128>>>(a, 256);
  mma<half, half, 16, 16, 16><<<1320, 128>>>((half*)a, 256);
  mma<__nv_bfloat16, float, 16, 16, 16><<<1320, 128>>>(a, 256);
  mma<float, float, 16, 16, 8, wmma::precision::tf32><<<1320, 128>>>(a, 256);
  mma<signed char, int, 16, 16, 16><<<1320, 128>>>((int*)a, 256);
  mma<double, double, 8, 8, 4><<<1320, 128>>>((double*)a, 256);
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
