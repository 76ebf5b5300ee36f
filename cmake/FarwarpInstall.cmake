# The installed library, its package, and the target that a consumer links.
#
# Kernels, operators and cases register themselves from static objects. With an ordinary static library the linker would drop
# those that no code refers to. So the package's target farwarp::farwarp, here and after find_package(farwarp), links the whole archive.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

add_library(farwarp_archive STATIC)
set_target_properties(farwarp_archive PROPERTIES OUTPUT_NAME farwarp EXPORT_NAME archive)
# The public headers: those that a host program includes, and those that they include. The device vocabulary and the kernels are not
# installed. tests/consumer compiles each installed header alone.
target_sources(farwarp_archive
  PRIVATE $<TARGET_OBJECTS:farwarp_objects> $<TARGET_PROPERTY:farwarp_objects,INTERFACE_SOURCES>
  PUBLIC FILE_SET HEADERS BASE_DIRS src FILES
    src/farwarp/base/divisor.h
    src/farwarp/base/expert_ranks.h
    src/farwarp/base/fp8.h
    src/farwarp/base/fragments.h
    src/farwarp/base/half.h
    src/farwarp/base/host_activity.h
    src/farwarp/base/machine_shape.h
    src/farwarp/base/pointers.h
    src/farwarp/base/status.h
    src/farwarp/base/swizzle.h
    src/farwarp/base/tensor_map.h
    src/farwarp/base/trace.h
    src/farwarp/submission.h
    src/farwarp/runtime/device.h
    src/farwarp/runtime/device_trace.h
    src/farwarp/world/view.h
    src/farwarp/world/host/bootstrap.h
    src/farwarp/world/host/world.h
    src/farwarp/ops/all_reduce/all_reduce.h
    src/farwarp/ops/all_reduce/plan.h
    src/farwarp/ops/attention/attention.h
    src/farwarp/ops/attention/mapping.h
    src/farwarp/ops/attention/plan.h
    src/farwarp/ops/flash_decode/flash_decode.h
    src/farwarp/ops/flash_decode/plan.h
    src/farwarp/ops/gemm/gemm.h
    src/farwarp/ops/gemm/plan.h
    src/farwarp/ops/grouped_gemm/grouped_gemm.h
    src/farwarp/ops/grouped_gemm/plan.h
    src/farwarp/tile/activation.h
    src/farwarp/tile/gemm/raster.h
    src/farwarp/tile/gemm/scales.h
    src/farwarp/tile/gemm/tiling.h
    src/farwarp/tile/gemm/variants.h
    src/farwarp/ops/parallel_gemm/desc.h
    src/farwarp/ops/parallel_gemm/unfused.h
    src/farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h
    src/farwarp/ops/parallel_gemm/ag_gemm/ag_gemm.h
    src/farwarp/ops/parallel_gemm/ag_gemm/plan.h
    src/farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h
    src/farwarp/ops/parallel_gemm/gemm_ar/plan.h
    src/farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h
    src/farwarp/ops/parallel_gemm/gemm_reduce/layout.h
    src/farwarp/ops/parallel_gemm/gemm_reduce/plan.h
    src/farwarp/ops/parallel_gemm/gemm_rs/plan.h
    src/farwarp/ops/moe_a2a/moe_a2a.h
    src/farwarp/ops/moe_a2a/plan.h
    src/farwarp/ops/moe_layer/moe_layer.h
    src/farwarp/ops/moe_layer/plan.h
    src/farwarp/fleet/dispatcher.h
    src/farwarp/fleet/graph.h
    src/farwarp/fleet/layout.h
    src/farwarp/models/qwen3/config.h
    src/farwarp/models/qwen3/plan.h
    src/farwarp/models/qwen3/prefill/plan.h
    src/farwarp/models/qwen3/qwen3.h)
target_link_libraries(farwarp_archive PUBLIC Threads::Threads ${CMAKE_DL_LIBS} Boost::context ${farwarp_fmt} ZLIB::ZLIB)
target_compile_features(farwarp_archive PUBLIC cxx_std_20)
if(FARWARP_SANITIZE)
  target_link_options(farwarp_archive PUBLIC -fsanitize=${FARWARP_SANITIZE})
endif()
if(FARWARP_COVERAGE)
  target_link_options(farwarp_archive PUBLIC --coverage)
endif()

add_library(farwarp_package INTERFACE)
set_target_properties(farwarp_package PROPERTIES EXPORT_NAME farwarp)
target_link_libraries(farwarp_package INTERFACE "$<LINK_LIBRARY:WHOLE_ARCHIVE,$<TARGET_NAME:farwarp_archive>>")
add_library(farwarp::farwarp ALIAS farwarp_package)

install(TARGETS farwarp_archive farwarp_package EXPORT farwarp FILE_SET HEADERS)
install(TARGETS farwarp_shared EXPORT farwarp FILE_SET HEADERS)
if(TARGET farwarp)
  install(TARGETS farwarp)
endif()
# What is compiled of the Python package: pyproject.toml installs this component alone, and so do the tests.
install(FILES $<TARGET_FILE:farwarp_shared> RENAME libfarwarp.so DESTINATION farwarp/lib COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:farwarp> DESTINATION farwarp/bin COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY suites/ DESTINATION ${CMAKE_INSTALL_DATADIR}/farwarp/suites FILES_MATCHING PATTERN "*.json")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY licenses DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/farwarp)
install(EXPORT farwarp NAMESPACE farwarp:: FILE farwarpTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/farwarpConfig.cmake.in ${PROJECT_BINARY_DIR}/farwarpConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/farwarpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/farwarpConfig.cmake ${PROJECT_BINARY_DIR}/farwarpConfigVersion.cmake
  DESTINATION ${package_dir})
