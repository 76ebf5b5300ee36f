# farwarp_kernels(name entry.dev.cc [TO target]): compiles one kernel file once per target into `target` (farwarp_objects).
#   emulator  always: one object per personality
#   cuda      with FARWARP_CUDA: a cubin for sm_90a, embedded
#   hip       with FARWARP_HIP: code objects name.gfx942.co and name.gfx950.co, embedded
function(farwarp_kernels name entry)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "TO" "DEFINES")
  if(NOT ARG_TO)
    set(ARG_TO farwarp_objects)
  endif()
  foreach(personality EMU_SM90 EMU_GFX942)
    string(TOLOWER ${personality} suffix)
    set(object ${name}_${suffix})
    add_library(${object} OBJECT ${entry})
    target_compile_definitions(${object} PRIVATE FARWARP_TARGET_${personality} ${ARG_DEFINES})
    target_include_directories(${object} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(${object} PRIVATE -Wall -Wextra -ffp-contract=off)
    target_link_libraries(${object} PRIVATE farwarp_dependencies)
    target_sources(${ARG_TO} PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
endfunction()
